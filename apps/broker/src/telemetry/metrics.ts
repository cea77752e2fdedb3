/** Defines the broker's metrics. */
import type { Counters, TimedStage } from '@sealpost/core'
import type { Claimed, CloseCode } from '@sealpost/protocol'
import type { Batch } from '@sealpost/queue'
import type { Millis } from '@sealpost/std'
import { Counter, Gauge, Registry } from 'prom-client'
import type { Traces } from './traces.ts'

const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5]
/** Bounds for sends, which may wait for several slow commits. */
const SEND_SECONDS = [...SECONDS, 5, 10, 30]
/** Bounds for replays, which are cut off after two minutes. */
const REPLAY_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120]
const ROWS = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000]

const ENGINE_COUNTERS: Readonly<Record<keyof Counters, readonly [name: string, help: string]>> = {
  accepted: ['envelopes_accepted', 'envelopes committed and acknowledged'],
  duplicates: ['envelopes_duplicate', 'resends acknowledged as duplicates'],
  nacked: ['envelopes_refused', 'envelopes refused with a nack'],
  mailboxFull: ['mailbox_full', "envelopes refused because the mailbox or the sender's share of the mailbox is full"],
  meshFull: ['mesh_full', "envelopes refused because the mesh or the sender's share of the mesh is full"],
  pushed: ['deliveries_pushed', 'pushes, including redeliveries'],
  redelivered: ['deliveries_redelivered', 'repeated pushes of a delivery'],
  leasedOnInsert: [
    'deliveries_leased_on_insert',
    'deliveries leased on insert and pushed after their commit, without a claim',
  ],
  settled: ['deliveries_settled', 'deliveries that recipients settled'],
  settledForeign: [
    'settles_ignored',
    'settles, retries and rejects ignored because the connection did not hold the delivery',
  ],
  retried: ['deliveries_retried', 'deliveries that recipients returned with a retry'],
  rejected: ['deliveries_rejected', 'deliveries that recipients rejected'],
  extended: ['leases_extended', 'leases that recipients extended'],
  ephemeralPushed: ['ephemeral_messages_pushed', 'ephemeral messages pushed to an online recipient'],
  claims: ['claims_requested', 'claims that sessions requested from the claim loop'],
  collected: [
    'deliveries_collected',
    'deliveries that other shards leased on insert and that this shard read without a claim',
  ],
  fences: ['sessions_fenced', 'sessions that received a new epoch because a database reply was lost'],
}

export type Timing = 'ack' | 'push' | 'commit'
export class Metrics {
  readonly registry = new Registry()
  private readonly commitSeconds = this.histogram('commit_seconds', 'duration of one group commit', SECONDS)
  private readonly commitRows = this.histogram('commit_appends', 'envelopes in one group commit', ROWS)
  private readonly claimSeconds = this.histogram('claim_seconds', 'duration of one claim statement', SECONDS)
  private readonly claimRows = this.histogram('claim_deliveries', 'deliveries returned by one claim statement', ROWS)
  private readonly ackSeconds = this.histogram('send_ack_seconds', 'time from an admitted send to its ack', SEND_SECONDS) // biome-ignore format: one thing
  private readonly pushSeconds = this.histogram('send_push_seconds', 'time from an admitted send to its push, for deliveries that are pushed directly after their commit', SEND_SECONDS) // biome-ignore format: one thing
  private readonly settleSeconds = this.histogram(
    'settle_seconds',
    'time from the push of a delivery to its settle, for the first delivery of each settle frame',
    SEND_SECONDS,
  )
  private readonly lagSeconds = this.histogram(
    'event_loop_late_seconds',
    'event loop lag, measured four times per second',
    SECONDS,
  )
  private readonly httpSeconds = register(
    this.registry,
    new FastHistograms({
      name: 'sealpost_http_request_seconds',
      help: 'time from a request on the public port to the start of its response, by route; a long poll includes its wait',
      bounds: SEND_SECONDS,
      label: 'route',
    }),
  )
  private readonly replaySeconds = register(
    this.registry,
    new FastHistograms({
      name: 'sealpost_replay_seconds',
      help: 'time from a request for state or history until its response ends or its reader disconnects, excluding followers',
      bounds: REPLAY_SECONDS,
      label: 'kind',
    }),
  )
  private readonly closes = new Counter({
    name: 'sealpost_sessions_closed_total',
    help: 'connections closed by the broker, by code',
    labelNames: ['code'],
    registers: [this.registry],
  })
  private readonly away = new Counter({
    name: 'sealpost_requests_refused_total',
    help: 'requests and upgrades refused by admission control, by code',
    labelNames: ['code'],
    registers: [this.registry],
  })
  private readonly moved = new Counter({
    name: 'sealpost_deliveries_moved_total',
    help: 'deliveries that left the queue unsettled, by reason',
    labelNames: ['reason'],
    registers: [this.registry],
  })

  private readonly stages = { ack: this.ackSeconds, push: this.pushSeconds, settle: this.settleSeconds }

  movedCount = 0
  private readonly traces: Traces | null

  /** @param traces - also records each commit and claim */
  constructor(traces: Traces | null = null) {
    this.traces = traces
  }

  observe(read: {
    counters: Readonly<Counters>
    gauges: Readonly<Record<string, readonly [string, () => number]>>
  }): void {
    for (const [key, [name, help]] of Object.entries(ENGINE_COUNTERS))
      this.count({ [name]: [help, () => read.counters[key as keyof Counters]] })
    this.show(read.gauges)
  }

  count(counters: Readonly<Record<string, readonly [help: string, read: () => number]>>): void {
    for (const [name, [help, value]] of Object.entries(counters))
      this.reading(Counter, `sealpost_${name}_total`, help, value)
  }

  show(gauges: Readonly<Record<string, readonly [help: string, read: () => number]>>): void {
    for (const [name, [help, value]] of Object.entries(gauges)) this.reading(Gauge, `sealpost_${name}`, help, value)
  }

  committed(batch: Batch, tookMs: Millis): void {
    this.commitSeconds.observe(tookMs / 1000)
    this.commitRows.observe(batch.appends.length)
    this.traces?.committed(batch, tookMs)
  }

  commitFailed(batch: Batch, tookMs: Millis): void {
    this.traces?.commitFailed(batch, tookMs)
  }

  timed(stage: TimedStage, tookMs: Millis): void {
    this.stages[stage].observe(tookMs / 1000)
  }

  /**
   * Returns a handler that measures requests. @param routeOf - maps a path to its route, because a path must not become
   * a label
   */
  serving<Caller>(
    answer: (request: Request, caller: Caller) => Response | Promise<Response>,
    routeOf: (pathname: string) => string,
  ): (request: Request, caller: Caller) => Promise<Response> {
    return async (request, caller) => {
      const startedAtMs = performance.now()
      const response = await answer(request, caller)
      this.httpSeconds.observe(routeOf(new URL(request.url).pathname), (performance.now() - startedAtMs) / 1000)
      return response
    }
  }

  replayed(kind: 'state' | 'history', tookMs: Millis): void {
    this.replaySeconds.observe(kind, tookMs / 1000)
  }

  late(lagMs: Millis): void {
    this.lagSeconds.observe(lagMs / 1000)
  }

  /** The cumulative counts since the start, by bucket in seconds; the last one is unbounded. */
  get distributions(): Readonly<Record<Timing, Distribution>> {
    const { ackSeconds: ack, pushSeconds: push, commitSeconds: commit } = this
    return { ack: ack.distribution, push: push.distribution, commit: commit.distribution }
  }

  claimed(claimed: readonly Claimed[], tookMs: Millis): void {
    let rows = 0
    for (const answer of claimed) if (answer.status === 'claimed') rows += answer.deliveries.length
    this.claimSeconds.observe(tookMs / 1000)
    this.claimRows.observe(rows)
    this.traces?.claimed(claimed, tookMs)
  }

  closed(code: CloseCode): void {
    this.closes.inc({ code })
  }

  /** Counts a refusal. `code` must not be a client's input. */
  turnedAway(code: string): void {
    this.away.inc({ code })
  }

  swept(expired: number, dead: number): void {
    this.moved.inc({ reason: 'expired' }, expired)
    this.moved.inc({ reason: 'strikes' }, dead)
    this.movedCount += expired + dead
  }

  private histogram(name: string, help: string, bounds: readonly number[]): FastHistogram {
    return register(this.registry, new FastHistogram({ name: `sealpost_${name}`, help, bounds }))
  }

  private reading(Kind: typeof Counter | typeof Gauge, name: string, help: string, read: () => number): void {
    new Kind({
      name,
      help,
      registers: [this.registry],
      collect() {
        this.reset()
        this.inc(read())
      },
    })
  }
}

export interface Distribution {
  readonly bounds: readonly number[]
  readonly counts: readonly number[]
}

export interface HistogramOptions {
  readonly name: string
  readonly help: string
  /** The ascending bounds. Values above the last count too. */
  readonly bounds: readonly number[]
}

/**
 * A histogram for values of every message, without allocation. With prom-client's, a value took 1.5 µs, an eighth of
 * the broker's time in a burst.
 */
export class FastHistogram {
  readonly type = 'histogram'
  readonly aggregator = 'sum'
  readonly name: string
  readonly help: string
  private readonly bounds: readonly number[]
  /** A count per bound, and one for values above the highest bound. */
  private readonly counts: Float64Array
  private sum = 0

  constructor({ name, help, bounds }: HistogramOptions) {
    this.name = name
    this.help = help
    this.bounds = [...bounds, Number.POSITIVE_INFINITY]
    this.counts = new Float64Array(this.bounds.length)
  }

  observe(value: number): void {
    let place = 0
    while (value > this.bounds[place]!) place += 1
    this.counts[place]! += 1
    this.sum += value
  }

  /** The cumulative counts up to each bound; the last is infinite. */
  get distribution(): Distribution {
    let count = 0
    const counts = [...this.counts].map((more) => {
      count += more
      return count
    })
    return { bounds: this.bounds, counts }
  }

  async get() {
    const { name, help, type, aggregator } = this
    const { bounds, counts } = this.distribution
    const buckets = bounds.map((bound, i) => ({
      metricName: `${name}_bucket`,
      labels: { le: bound === Number.POSITIVE_INFINITY ? '+Inf' : bound },
      value: counts[i]!,
    }))
    const totals = [
      { metricName: `${name}_sum`, labels: {}, value: this.sum },
      { metricName: `${name}_count`, labels: {}, value: counts.at(-1)! },
    ]
    return { name, help, type, aggregator, values: [...buckets, ...totals] }
  }

  reset(): void {
    this.counts.fill(0)
    this.sum = 0
  }
}

/** A histogram per value of a label, whose number of values must be bounded. */
export class FastHistograms {
  readonly type = 'histogram'
  readonly aggregator = 'sum'
  readonly name: string
  readonly help: string
  readonly #options: HistogramOptions & { readonly label: string }
  readonly #byValue = new Map<string, FastHistogram>()

  constructor(options: HistogramOptions & { readonly label: string }) {
    this.name = options.name
    this.help = options.help
    this.#options = options
  }

  observe(labelValue: string, value: number): void {
    const histogram = this.#byValue.get(labelValue) ?? new FastHistogram(this.#options)
    this.#byValue.set(labelValue, histogram)
    histogram.observe(value)
  }

  async get() {
    const { name, help, type, aggregator } = this
    const each = [...this.#byValue].map(async ([labelValue, histogram]) => {
      const { values } = await histogram.get()
      return values.map((one) => ({ ...one, labels: { ...one.labels, [this.#options.label]: labelValue } }))
    })
    return { name, help, type, aggregator, values: (await Promise.all(each)).flat() }
  }

  reset(): void {
    this.#byValue.clear()
  }
}

type Registered = Parameters<Registry['registerMetric']>[0]

/** Registers a metric, of which a registry uses only these members. */
export function register<Fast extends FastHistogram | FastHistograms>(registry: Registry, fast: Fast): Fast {
  registry.registerMetric(fast as unknown as Registered)
  return fast
}

let lastBytes = 0

/** Returns the process's resident memory from the kernel's file, or the last reading if no descriptor is free. */
export function residentBytes(): number {
  try {
    lastBytes = process.memoryUsage.rss()
  } catch {} // no descriptor is free (EMFILE)
  return lastBytes
}
