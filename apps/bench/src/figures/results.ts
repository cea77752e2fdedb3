/** What was measured, as it is kept in `results.json`: tables and charts are made from nothing else. */
import { foldedJson } from '@sealpost/harness/report/folded-json'
import type { Machine } from '@sealpost/harness/report/machine'
import type { IdleResult } from '@sealpost/loadtest/run/idle'
import type { LoadResult } from '@sealpost/loadtest/run/result'
import type { ScenarioResult } from '@sealpost/loadtest/scenarios/run'
import type { SoakFigures } from '@sealpost/loadtest/soak/soak'
import type { TortureFigures } from './torture-figures.ts'

/** By the kind of run; what a kind does not have is absent. */
export type RunResult = Partial<LoadResult> &
  Partial<IdleResult> & {
    readonly sweep?: readonly LoadResult[]
    readonly soak?: SoakFigures
    readonly scenarios?: readonly ScenarioResult[]
    readonly torture?: TortureFigures
  }

export interface Measured {
  /** The command, complete. */
  readonly command: string
  /** 0: nothing was lost, and what was to hold held. */
  readonly exitCode: number
  readonly machine: Machine
  readonly result: RunResult
}

/** By part, then by run. */
export type Results = Readonly<Record<string, Readonly<Record<string, Measured>>>>

export async function readResults(path: string): Promise<Results> {
  const file = Bun.file(path)
  return (await file.exists()) ? ((await file.json()) as Results) : {}
}

export async function writeResults(path: string, results: Results): Promise<void> {
  await Bun.write(path, foldedJson(results, 3))
}

/** Without the series of each second, which are a hundred times the rest. */
export function withoutSeries(result: RunResult): RunResult {
  const { samples: _, ...kept } = result
  return {
    ...kept,
    ...(kept.soak && { soak: { ...kept.soak, series: [] } }),
    ...(kept.sweep && { sweep: kept.sweep.map((each) => ({ ...each, samples: [] })) }),
  }
}
