/** Records latencies in microseconds with three significant digits, up to an hour. */
import { build, type Histogram } from 'hdr-histogram-js'

export interface Percentiles {
  readonly p50: number
  readonly p95: number
  readonly p99: number
  readonly max: number
}

export type Quantile = readonly [percent: number, ms: number]

/** A bin's upper bound, and its number of samples. */
export type Bin = readonly [upToMs: number, count: number]

const MICROSECONDS_MAX = 3_600_000_000
const SPECTRUM = [50, 60, 70, 75, 80, 85, 90, 92.5, 95, 96, 97, 98, 98.5, 99, 99.25, 99.5, 99.7, 99.8, 99.9]

/** The bounds of the bins: six per power of ten. */
const STEPS = [1, 1.5, 2, 3, 5, 7]
const boundOf = (bin: number): number => STEPS[bin % 6]! * 10 ** (Math.floor(bin / 6) - 2)

export class Latencies {
  readonly #bins: number[] = []
  readonly #counts: Histogram = build({
    lowestDiscernibleValue: 1,
    highestTrackableValue: MICROSECONDS_MAX,
    numberOfSignificantValueDigits: 3,
  })

  note(ms: number): void {
    this.#counts.recordValue(Math.min(MICROSECONDS_MAX, Math.max(1, Math.round(ms * 1000))))
    let bin = Math.max(0, 6 * Math.floor(Math.log10(Math.max(0.01, ms)) + 2))
    while (boundOf(bin) < ms) bin += 1
    this.#bins[bin] = (this.#bins[bin] ?? 0) + 1
  }

  /** The bins from the first with samples to the last. */
  get bins(): Bin[] {
    const first = this.#bins.findIndex((count) => count > 0)
    return first < 0 ? [] : Array.from(this.#bins, (count = 0, bin) => [boundOf(bin), count] as const).slice(first)
  }

  get count(): number {
    return this.#counts.totalCount
  }

  get percentiles(): Percentiles {
    return { p50: this.at(50), p95: this.at(95), p99: this.at(99), max: this.at(100) }
  }

  get spectrum(): Quantile[] {
    return SPECTRUM.map((percent) => [percent, this.at(percent)])
  }

  /** Returns a percentile in ms, 0 without samples. It is a bin's upper bound, so it may exceed all samples. */
  at(percent: number): number {
    if (this.count === 0) return 0
    return Math.min(this.#counts.getValueAtPercentile(percent), this.#counts.maxValue) / 1000
  }
}
