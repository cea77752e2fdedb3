/**
 * The figures of v0.1.0 of the public project that this design comes from, from two sources that are kept apart. Both
 * count latency from the call of `send()` to the push.
 */

export interface EarlierRun {
  /** 100 peers × 1,000 messages, all called at once. */
  readonly burst: {
    readonly delivered: number
    /** Until the last of them was delivered; in `published` the time at which the run gave up. */
    readonly seconds: number
    readonly p50Ms: number
    readonly p99Ms: number
    readonly brokerRssMb: number
    /** Null: not checked. */
    readonly outOfOrder: number | null
  }
  /** Call → push p99 in ms by number of peers, with 100 messages each. */
  readonly sweepP99Ms: Readonly<Record<number, number>>
  /** Acknowledged messages that were lost when the broker was killed; null: not tried. */
  readonly lostInKill: { readonly lost: number; readonly of: number } | null
}

/** From its own report, "Broker Load Test — v0.1.0 Baseline" of 2026-04-05, measured on macOS. */
export const PUBLISHED: EarlierRun = {
  burst: { delivered: 88_778, seconds: 900, p50Ms: 12_900, p99Ms: 23_000, brokerRssMb: 1_156, outOfOrder: null },
  sweepP99Ms: { 10: 1_160, 25: 8_710, 50: 9_900, 100: 4_660 },
  lostInKill: null,
}

/** From our rerun on two Linux cores, with a corrected harness. */
export const RERUN: EarlierRun = {
  burst: { delivered: 100_000, seconds: 74.5, p50Ms: 21_600, p99Ms: 34_800, brokerRssMb: 1_445, outOfOrder: 425 },
  sweepP99Ms: { 10: 1_300, 50: 2_600, 100: 4_400 },
  lostInKill: { lost: 4_999, of: 5_000 },
}

/** Messages a second in its rerun; the published run did not deliver all of its messages. */
export const RERUN_PER_SECOND = 1_372

/** The better of both figures, of the nearest smaller number of peers that was measured, or of the smallest one. */
export function bestSweepP99Ms(peers: number): number {
  const sizes = Object.keys(PUBLISHED.sweepP99Ms).map(Number)
  const size = sizes.findLast((each) => each <= peers) ?? sizes[0]!
  return Math.min(PUBLISHED.sweepP99Ms[size]!, RERUN.sweepP99Ms[size] ?? Infinity)
}
