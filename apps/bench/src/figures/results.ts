/** Reads and writes `results.json`, the source of all tables and charts, and runs the programs that measure. */

import { join } from 'node:path'
import type { Machine } from '@sealpost/harness/programs/machine'
import { foldedJson } from '@sealpost/harness/report/text'
import type { ComparisonResult } from '@sealpost/loadtest/rivals/result'
import type { IdleResult } from '@sealpost/loadtest/run/idle'
import type { LoadResult } from '@sealpost/loadtest/run/result'
import type { ScenarioResult } from '@sealpost/loadtest/scenarios/run'
import type { SoakFigures } from '@sealpost/loadtest/soak/soak-report'
import { OperatingError } from '@sealpost/std'
import type { VerdictLine } from '@sealpost/torture/verdict'
import type { Script } from './parts.ts'

/** A result, of which each kind of run sets some fields. */
export type RunResult = Partial<LoadResult> &
  Partial<IdleResult> & {
    readonly sweep?: readonly LoadResult[]
    readonly soak?: SoakFigures
    readonly scenarios?: readonly ScenarioResult[]
    readonly torture?: TortureFigures
    readonly comparison?: ComparisonResult
  }

export interface Measured {
  readonly command: string
  /** 0 if nothing was lost and all requirements were met. */
  readonly exitCode: number
  readonly machine: Machine
  readonly result: RunResult
}

/** Results by part, then by run. */
export type Results = Readonly<Record<string, Readonly<Record<string, Measured>>>>

export async function readResults(path: string): Promise<Results> {
  const file = Bun.file(path)
  return (await file.exists()) ? ((await file.json()) as Results) : {}
}

export async function writeResults(path: string, results: Results): Promise<void> {
  await Bun.write(path, foldedJson(results, 3))
}

/** Removes the per-second series, a hundred times as large as the rest. */
export function withoutSeries(result: RunResult): RunResult {
  const { samples: _, ...kept } = result
  return {
    ...kept,
    ...(kept.soak && { soak: { ...kept.soak, series: [] } }),
    ...(kept.sweep && { sweep: kept.sweep.map((each) => ({ ...each, samples: [] })) }),
  }
}

const SCRIPTS = join(import.meta.dirname, '../../../../scripts')

export interface Measurement {
  readonly script: Script
  readonly words: string
  /** Where the program writes its JSON. */
  readonly folder: string
  readonly env: Readonly<Record<string, string>>
  readonly machine: Machine
  /** Aborts when the benchmark ends. */
  readonly signal: AbortSignal
}

/** Runs a program. @throws OperatingError `bench_failed` with its error, if there is no result */
export async function measure({ script, words, folder, env, machine, signal }: Measurement): Promise<Measured> {
  const jsonFile = join(folder, `${crypto.randomUUID()}.json`)
  // The torture test prints its JSON; others write a file.
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

/** The output of `scripts/torture.ts --json`. */
export interface TortureReport {
  readonly seed: number
  readonly lines: readonly VerdictLine[]
  readonly total: VerdictLine
}

export interface TortureFigures {
  readonly seed: number
  readonly faults: number
  /** The number of scenarios with a fault. */
  readonly kinds: number
  readonly acked: number
  readonly lost: number
  readonly misdelivered: number
  readonly misordered: number
}

export function tortureFigures({ seed, lines, total }: TortureReport): TortureFigures {
  const { lost, misdelivered, misordered } = total.breaches
  const kinds = lines.filter(({ rounds }) => rounds > 0).length
  return { seed, faults: total.rounds, kinds, acked: total.acked, lost, misdelivered, misordered }
}
