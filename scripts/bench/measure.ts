/** Runs one load test as a user would, a program of its own, and takes its JSON. */
import { join } from 'node:path'
import { OperatingError } from '@sealpost/std'
import type { Machine } from './machine.ts'
import { type Measured, type RunResult, withoutSeries } from './results.ts'

const SCRIPT = join(import.meta.dirname, '../load-test.ts')

export interface Measurement {
  readonly words: string
  /** Where its JSON may go. */
  readonly folder: string
  readonly env: Readonly<Record<string, string>>
  readonly machine: Machine
  /** Ends it with the benchmark. */
  readonly signal: AbortSignal
}

/** @throws OperatingError `bench_failed` with what it said, when it came to no result */
export async function measure({ words, folder, env, machine, signal }: Measurement): Promise<Measured> {
  const jsonFile = join(folder, `${crypto.randomUUID()}.json`)
  const child = Bun.spawn([process.execPath, SCRIPT, ...words.split(' '), '--json', jsonFile], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    signal,
    killSignal: 'SIGTERM',
  })
  const [, said, exitCode] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ])
  const file = Bun.file(jsonFile)
  if (!(await file.exists())) throw new OperatingError('bench_failed', `load-test.ts ${words}: ${said.trim()}`)
  const result = withoutSeries((await file.json()) as RunResult)
  return { command: `bun scripts/load-test.ts ${words}`, exitCode, machine, result }
}
