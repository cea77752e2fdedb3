/** Latencies counted in buckets: three digits of a microsecond figure, up to an hour. */
import { build, type Histogram } from 'hdr-histogram-js'

export interface Percentiles {
  readonly p50: number
  readonly p95: number
  readonly p99: number
  readonly max: number
}

/** A percentage and the milliseconds that so many of all stayed below. */
export type Quantile = readonly [percent: number, ms: number]

const MICROSECONDS_MAX = 3_600_000_000
const SPECTRUM = [50, 60, 70, 75, 80, 85, 90, 92.5, 95, 96, 97, 98, 98.5, 99, 99.25, 99.5, 99.7, 99.8, 99.9]

export class Latencies {
  readonly #counts: Histogram = build({
    lowestDiscernibleValue: 1,
    highestTrackableValue: MICROSECONDS_MAX,
    numberOfSignificantValueDigits: 3,
  })

  note(ms: number): void {
    this.#counts.recordValue(Math.min(MICROSECONDS_MAX, Math.max(1, Math.round(ms * 1000))))
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

  /** Milliseconds; 0 when nothing was noted. A bucket answers with its upper end, which may lie above its values. */
  at(percent: number): number {
    if (this.count === 0) return 0
    return Math.min(this.#counts.getValueAtPercentile(percent), this.#counts.maxValue) / 1000
  }
}
