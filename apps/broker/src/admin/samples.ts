/** The broker's samples of the last half hour, one every two seconds. They are lost when the broker exits. */
import type { Counters } from '@sealpost/core'
import type { Sample } from '@sealpost/operator'
import type { Millis } from '@sealpost/std'
import { type Distribution, type Metrics, residentBytes, type Timing } from '../telemetry/metrics.ts'

export const SAMPLE_EVERY_MS = 2000
const SAMPLES_MAX = 900

interface Parts {
  readonly metrics: Metrics
  readonly counters: () => Readonly<Counters>
  readonly gauges: () => Pick<Sample, 'sessions' | 'depth' | 'oldestAgeMs'>
}

interface Reading {
  readonly atMs: Millis
  readonly counters: Readonly<Counters>
  readonly moved: number
  readonly timings: Metrics['distributions']
}

export class BrokerSamples {
  readonly samples: Sample[] = []
  private readonly parts: Parts
  private readonly listeners = new Set<(sample: Sample) => void>()
  private readonly timer: ReturnType<typeof setInterval>
  private before: Reading | null = null

  constructor(parts: Parts) {
    this.parts = parts
    this.look()
    this.timer = setInterval(() => this.look(), SAMPLE_EVERY_MS)
    this.timer.unref()
  }

  get latest(): Sample {
    return this.samples.at(-1) ?? { ...NOTHING_YET, ...this.parts.gauges(), atMs: Date.now(), memoryBytes: 0 }
  }

  /** @returns a function that unsubscribes */
  listen(listener: (sample: Sample) => void): () => void {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  stop(): void {
    clearInterval(this.timer)
  }

  private look(): void {
    const { metrics, counters, gauges } = this.parts
    const timings = metrics.distributions
    const reading = { atMs: performance.now(), counters: { ...counters() }, moved: metrics.movedCount, timings }
    const sample = { ...between(this.before, reading), ...gauges(), atMs: Date.now(), memoryBytes: residentBytes() } // biome-ignore format: one thing
    this.before = reading
    this.samples.push(sample)
    if (this.samples.length > SAMPLES_MAX) this.samples.shift()
    for (const listener of this.listeners) listener(sample)
  }
}

type Between = Omit<Sample, 'atMs' | 'sessions' | 'depth' | 'oldestAgeMs' | 'memoryBytes'>

function between(before: Reading | null, after: Reading): Between {
  const seconds = before ? (after.atMs - before.atMs) / 1000 : 1
  const rate = (name: keyof Counters) => round((after.counters[name] - (before?.counters[name] ?? 0)) / seconds)
  const ms = (timing: Timing, share: number) => {
    const value = quantile(before?.timings[timing] ?? null, after.timings[timing], share)
    return value === null ? null : round(1000 * value)
  }
  return {
    acceptedPerSecond: rate('accepted'),
    pushedPerSecond: rate('pushed'),
    settledPerSecond: rate('settled'),
    refusedPerSecond: rate('nacked'),
    lostPerSecond: round((after.moved - (before?.moved ?? 0)) / seconds),
    ackP50Ms: ms('ack', 0.5),
    ackP95Ms: ms('ack', 0.95),
    ackP99Ms: ms('ack', 0.99),
    pushP50Ms: ms('push', 0.5),
    pushP95Ms: ms('push', 0.95),
    pushP99Ms: ms('push', 0.99),
    commitP99Ms: ms('commit', 0.99),
  }
}

const NOTHING_YET: Between = {
  acceptedPerSecond: 0,
  pushedPerSecond: 0,
  settledPerSecond: 0,
  refusedPerSecond: 0,
  lostPerSecond: 0,
  ackP50Ms: null,
  ackP95Ms: null,
  ackP99Ms: null,
  pushP50Ms: null,
  pushP95Ms: null,
  pushP99Ms: null,
  commitP99Ms: null,
}

const round = (value: number): number => Math.round(value * 100) / 100

/**
 * Returns the percentile in the unit of the bounds, interpolated linearly within a bucket like Prometheus; in the last,
 * unbounded bucket its lower bound. Null: nothing was counted.
 */
export function quantile(before: Distribution | null, after: Distribution, share: number): number | null {
  const counts = after.counts.map((count, i) => count - (before?.counts[i] ?? 0))
  const total = counts.at(-1) ?? 0
  if (total <= 0) return null
  const rank = share * total
  const i = counts.findIndex((count) => count >= rank)
  const [upper, lower] = [after.bounds[i]!, i === 0 ? 0 : after.bounds[i - 1]!]
  if (!Number.isFinite(upper)) return lower
  const below = i === 0 ? 0 : counts[i - 1]!
  return lower + ((upper - lower) * (rank - below)) / (counts[i]! - below)
}
