/** Runs one program as a user would, and takes its JSON. */
import { join } from 'node:path'
import type { Machine } from '@sealpost/harness/report/machine'
import { OperatingError } from '@sealpost/std'
import type { Script } from './parts.ts'
import { type Measured, type RunResult, withoutSeries } from './results.ts'
import { type TortureReport, tortureFigures } from './torture-figures.ts'

const SCRIPTS = join(import.meta.dirname, '../../../../scripts')

export interface Measurement {
  readonly script: Script
  readonly words: string
  /** Where its JSON may go. */
  readonly folder: string
  readonly env: Readonly<Record<string, string>>
  readonly machine: Machine
  /** Ends it with the benchmark. */
  readonly signal: AbortSignal
}

/** @throws OperatingError `bench_failed` with the program's own error when it has no result */
export async function measure({ script, words, folder, env, machine, signal }: Measurement): Promise<Measured> {
  const jsonFile = join(folder, `${crypto.randomUUID()}.json`)
  // The torture prints its JSON, the load test writes it to a file.
  const json = script === 'torture.ts' ? ['--json'] : ['--json', jsonFile]
  const child = Bun.spawn([process.execPath, join(SCRIPTS, script), ...words.split(' '), ...json], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    signal,
    killSignal: 'SIGTERM',
  })
  const [printed, said, exitCode] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ])
  const result = script === 'torture.ts' ? tortureIn(printed) : await loadIn(jsonFile)
  if (!result) throw new OperatingError('bench_failed', `${script} ${words}: ${said.trim()}`)
  return { command: `bun scripts/${script} ${words}`, exitCode, machine, result }
}

function tortureIn(printed: string): RunResult | null {
  return printed.trim() === '' ? null : { torture: tortureFigures(JSON.parse(printed) as TortureReport) }
}

async function loadIn(jsonFile: string): Promise<RunResult | null> {
  const file = Bun.file(jsonFile)
  return (await file.exists()) ? withoutSeries((await file.json()) as RunResult) : null
}
