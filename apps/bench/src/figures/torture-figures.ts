/** What is kept of a run of `scripts/torture.ts`. */
import type { VerdictLine } from '@sealpost/torture/verdict'

/** As `--json` prints it. */
export interface TortureReport {
  readonly seed: number
  readonly lines: readonly VerdictLine[]
  readonly total: VerdictLine
}

export interface TortureFigures {
  readonly seed: number
  readonly faults: number
  /** Scenarios with at least one fault. */
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
