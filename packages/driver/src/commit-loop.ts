/**
 * Implements a self-clocked group commit. When a commit returns, everything that is waiting becomes the next batch.
 * Under a steady load, commits start at least 2 ms apart. The loop pauses after a commit if that makes the next batch
 * larger, and backs off while commits fail.
 */
import type { Engine } from '@sealpost/core'
import type { Append, Committed, SessionRef, Settle, SharedBody } from '@sealpost/protocol'
import type { Batch, Queue } from '@sealpost/queue'
import type { Millis } from '@sealpost/std'
import type { Failures } from './background.ts'
import type { Clock, DriverReport } from './ports.ts'

/** The maximum age of uncommitted settles, which a crash makes peers repeat. */
const SETTLE_WITHIN_MS: Millis = 20
/** The first pause after a failed commit; it doubles after each failure. */
const BACK_OFF_MIN_MS: Millis = 50
const BACK_OFF_MAX_MS: Millis = 1000

/** The minimum number of appends of a commit that may be followed by a pause. */
const PACED_FROM = 64
const PACED_BELOW = 1_000
const PAUSE_MAX_MS: Millis = 15

export interface BatchLimits {
  readonly appendsMax: number
  readonly appendBytesMax: number
  readonly settlesMax: number
  /** The number of waiting settles that are due without `callSettles`. */
  readonly settlesDueAt: number
}

export const defaultBatchLimits: BatchLimits = {
  appendsMax: 2_000,
  appendBytesMax: 4 * 1024 * 1024,
  settlesMax: 5_000,
  settlesDueAt: 200,
}

export interface CommitPorts {
  readonly engine: Pick<Engine, 'commitStarts'>
  readonly clock: Clock
  readonly queue: Pick<Queue, 'commit'>
  readonly report: Pick<DriverReport, 'committed' | 'commitFailed' | 'fault'>
  readonly failures: Failures
  committed(batch: Batch, committed: Committed): void
  /** Called with the appends that have no outcome, in order. */
  failed(appends: readonly Append[]): void
}

export class CommitLoop {
  readonly #ports: CommitPorts
  readonly #batches: CommitBatches
  #isFlushDue = false
  #areSettlesCalled = false
  #backOffMs: Millis = 0
  #resumesAtMs: Millis = 0
  readonly #pace = new CommitPace()
  #isFlushTimed = false

  constructor(ports: CommitPorts, limits: BatchLimits) {
    this.#ports = ports
    this.#batches = new CommitBatches(limits)
  }

  get isIdle(): boolean {
    return this.#batches.isIdle
  }

  append(append: Append): void {
    this.#batches.append(append)
    if (!this.#isFlushDue) this.flushSoon()
  }

  settle(delivery: Settle): void {
    if (this.#batches.settle(delivery) && !this.#isFlushDue) this.flushSoon()
    if (this.#areSettlesCalled) return
    this.#areSettlesCalled = true
    this.#ports.clock.after(SETTLE_WITHIN_MS, () => {
      this.#areSettlesCalled = false
      this.#batches.callSettles()
      this.flushSoon()
    })
  }

  /** Resolves when every settle taken so far is committed. */
  settled(): Promise<void> {
    const settled = new Promise<void>((done) => this.#batches.whenSettled(done))
    this.flushSoon()
    return settled
  }

  /** Returns whether a settle of this recipient is uncommitted. */
  hasSettlesOf(recipient: Pick<SessionRef, 'meshId' | 'peer'>): boolean {
    return this.#batches.hasSettlesOf(recipient)
  }

  /** Commits together with other items of this turn of the event loop. */
  flushSoon(): void {
    if (this.#isFlushDue) return
    this.#isFlushDue = true
    this.#ports.clock.soon(() => {
      this.#isFlushDue = false
      this.#flush()
    })
  }

  /** Ends the back-off after an outage. */
  resume(): void {
    this.#backOffMs = 0
    this.#resumesAtMs = 0
    this.flushSoon()
  }

  #flush(): void {
    const nowMs = this.#ports.clock.nowMs()
    if (nowMs < this.#resumesAtMs) return
    if (!this.#batches.isReady) return
    const waitMs = this.#pace.waitMs(nowMs)
    if (waitMs > 0) return this.#flushIn(waitMs)
    const batch = this.#batches.take()
    if (batch) this.#pace.started(batch.appends.length, nowMs)
    if (batch) void this.#commit(batch).catch((error) => this.#ports.report.fault(error))
  }

  async #commit(batch: Batch): Promise<void> {
    const { clock, engine, queue, report } = this.#ports
    const startedAtMs = clock.nowMs()
    if (batch.appends.length > 0) engine.commitStarts(batch.appends)
    let committed: Committed
    try {
      committed = await queue.commit(batch)
    } catch (error) {
      return this.#failed(batch, error, startedAtMs)
    }
    const tookMs = clock.nowMs() - startedAtMs
    this.#backOffMs = 0
    report.committed(batch, tookMs)
    this.#batches.succeeded()
    const pauseMs = pauseAfterCommit(batch, tookMs)
    if (pauseMs > 0) this.#pause(pauseMs)
    else if (this.#batches.isDue) this.flushSoon()
    this.#ports.committed(batch, committed)
  }

  #failed(batch: Batch, error: unknown, startedAtMs: Millis): void {
    const { clock, failures, report } = this.#ports
    failures.report('commit.failed', error)
    report.commitFailed(batch, clock.nowMs() - startedAtMs)
    this.#backOffMs = Math.min(BACK_OFF_MAX_MS, Math.max(BACK_OFF_MIN_MS, this.#backOffMs * 2))
    this.#pause(this.#backOffMs)
    this.#ports.failed(this.#batches.failed())
  }

  #flushIn(waitMs: Millis): void {
    if (this.#isFlushTimed) return
    this.#isFlushTimed = true
    this.#ports.clock.after(waitMs, () => {
      this.#isFlushTimed = false
      this.#flush()
    })
  }

  #pause(pauseMs: Millis): void {
    const { clock } = this.#ports
    this.#resumesAtMs = clock.nowMs() + pauseMs
    clock.after(pauseMs + 1, () => this.flushSoon())
  }
}

/** The time constant of the append rate's moving average. */
const RATE_WINDOW_MS: Millis = 250
const FLOOR_FROM_PER_SECOND = 1_500
const FLOOR_WHOLE_PER_SECOND = 2_500
const FLOOR_MS: Millis = 2

/**
 * Delays commits at a steady rate, because each costs about 400 µs. At 5,000 messages per second, this saves a fifth of
 * the CPU of broker and Postgres, and adds 1 ms to the median latency but nothing to p99
 * (docs/benchmarks/notes/latency.md).
 */
export class CommitPace {
  #perSecond = 0
  #startedAtMs: Millis = -Infinity

  started(appends: number, nowMs: Millis): void {
    const passedMs = nowMs - this.#startedAtMs
    this.#perSecond = this.#perSecond * Math.exp(-passedMs / RATE_WINDOW_MS) + (appends * 1000) / RATE_WINDOW_MS
    this.#startedAtMs = nowMs
  }

  /** Returns the time until the next commit may start, if positive. */
  waitMs(nowMs: Millis): Millis {
    const above = (this.#perSecond - FLOOR_FROM_PER_SECOND) / (FLOOR_WHOLE_PER_SECOND - FLOOR_FROM_PER_SECOND)
    return this.#startedAtMs + FLOOR_MS * Math.min(1, Math.max(0, above)) - nowMs
  }
}

/**
 * Returns the pause after a commit. Mail for another shard makes it collect, at a cost per sender and peer. After such
 * a commit of many messages, a pause as long as the commit makes the next one larger.
 */
export function pauseAfterCommit({ appends }: Pick<Batch, 'appends'>, tookMs: Millis): Millis {
  if (appends.length < PACED_FROM || appends.length >= PACED_BELOW) return 0
  return appends.some(({ remoteLeaseEpoch }) => remoteLeaseEpoch !== 0) ? Math.min(PAUSE_MAX_MS, tookMs) : 0
}

/**
 * Appends and settles that wait for a commit, and the batch in flight. One commit is in flight at a time, so that ids
 * ascend in the order in which the engine accepted the appends.
 *
 * No sender waits for a settle, so a small number of settles neither starts nor joins a commit; the commit is faster
 * without them. They are committed when many wait or when `callSettles` makes them due.
 */
export class CommitBatches {
  readonly #limits: BatchLimits
  #appends: Append[] = []
  #settles: Settle[] = []
  #areSettlesDue = false
  #inFlight: Batch | null = null
  /** The number of settles taken so far, which are committed in order. */
  #settleCount = 0
  #settledCount = 0
  readonly #settleWaiters: { readonly count: number; readonly done: () => void }[] = []

  constructor(limits: BatchLimits = defaultBatchLimits) {
    this.#limits = limits
  }

  get isIdle(): boolean {
    return this.#inFlight === null && this.#appends.length === 0 && this.#settles.length === 0
  }

  /** Whether a batch is due, which `take` returns once none is in flight. */
  get isDue(): boolean {
    return this.#appends.length > 0 || (this.#areSettlesDue && this.#settles.length > 0)
  }

  get isReady(): boolean {
    return this.#inFlight === null && this.isDue
  }

  append(append: Append): void {
    this.#appends.push(append)
  }

  /** Adds a settle. Returns whether settles are due. */
  settle(delivery: Settle): boolean {
    this.#settles.push(delivery)
    this.#settleCount += 1
    if (this.#settles.length >= this.#limits.settlesDueAt) this.#areSettlesDue = true
    return this.#areSettlesDue
  }

  /** Makes the waiting settles join the next batch. */
  callSettles(): void {
    this.#areSettlesDue = true
  }

  /** Calls back once every earlier settle is committed, and makes them due. */
  whenSettled(done: () => void): void {
    if (this.#settledCount === this.#settleCount) return done()
    this.#areSettlesDue = true
    this.#settleWaiters.push({ count: this.#settleCount, done })
  }

  hasSettlesOf({ meshId, peer }: Pick<SessionRef, 'meshId' | 'peer'>): boolean {
    const isOf = (settle: Settle) => (settle.recipient === peer || settle.holder === peer) && settle.meshId === meshId
    return this.#settles.some(isOf) || this.#inFlight?.settles.some(isOf) === true
  }

  /**
   * Takes the next batch, in flight until `succeeded` or `failed`. Returns null while one is in flight or if nothing is
   * due.
   */
  take(): Batch | null {
    if (this.#inFlight !== null) return null
    const settles = this.#areSettlesDue ? takeFirst(this.#settles, this.#limits.settlesMax) : []
    if (this.#appends.length === 0 && settles.length === 0) return null
    this.#areSettlesDue = this.#areSettlesDue && this.#settles.length > 0
    this.#inFlight = { appends: this.#takeAppends(), settles }
    return this.#inFlight
  }

  succeeded(): void {
    this.#settledCount += this.#inFlight?.settles.length ?? 0
    this.#inFlight = null
    while (this.#settleWaiters.length > 0 && this.#settleWaiters[0]!.count <= this.#settledCount)
      this.#settleWaiters.shift()!.done()
  }

  /**
   * Returns all appends without an outcome, because storing later ones first would reverse the order. Settles wait for
   * the next commit.
   */
  failed(): Append[] {
    const failed = [...(this.#inFlight?.appends ?? []), ...this.#appends]
    this.#settles = [...(this.#inFlight?.settles ?? []), ...this.#settles]
    this.#areSettlesDue = true
    this.#appends = []
    this.#inFlight = null
    return failed
  }

  #takeAppends(): Append[] {
    const { appendsMax, appendBytesMax } = this.#limits
    let count = 0
    let byteCount = 0
    let body: SharedBody | null = null
    while (count < this.#appends.length && count < appendsMax && (count === 0 || byteCount < appendBytesMax)) {
      const append = this.#appends[count]!
      byteCount += append.envelope.length
      if (append.body && append.body !== body) byteCount += append.body.bytes.length
      body = append.body
      count += 1
    }
    // Never split a broadcast: the body stored by the first half would make the second commit's outcome ambiguous.
    while (body !== null && this.#appends[count]?.body === body) count += 1
    if (count < this.#appends.length) return takeFirst(this.#appends, count)
    const all = this.#appends
    this.#appends = []
    return all
  }
}

/** Removes the first `count` items without copying the rest. */
function takeFirst<T>(items: T[], count: number): T[] {
  return items.splice(0, Math.min(count, items.length))
}
