/**
 * Group commit, self-clocked: when the former commit has returned and something waits, all of it is the next batch. An
 * idle broker adds no delay, a busy one batches by itself; there is no timer.
 *
 * One commit is in flight at a time, so that ids ascend in the order in which the engine accepted.
 *
 * Nobody waits for a settle, so few of them start no commit and join none: a commit that an envelope waits for is the
 * shorter without them. They go when they are many, or when they are called due.
 */
import type { Append, SessionRef, Settle, SharedBody } from '@sealpost/protocol'
import type { Batch } from './queue.ts'

export interface WriterOptions {
  readonly appendsMax: number
  readonly appendBytesMax: number
  readonly settlesMax: number
  /** So many wait for no call. */
  readonly settlesDueAt: number
}

export const defaultWriterOptions: WriterOptions = {
  appendsMax: 2_000,
  appendBytesMax: 4 * 1024 * 1024,
  settlesMax: 5_000,
  settlesDueAt: 200,
}

export class Writer {
  private readonly start: (batch: Batch) => void
  private readonly options: WriterOptions
  private appends: Append[] = []
  private settles: Settle[] = []
  private areSettlesDue = false
  private inFlight: Batch | null = null
  /** Settles taken and committed so far: they are committed in the order in which they came. */
  private settleCount = 0
  private settledCount = 0
  private readonly settleWaiters: { readonly count: number; readonly done: () => void }[] = []

  /** `start` begins a commit; its end is told by `succeeded` or `failed`. */
  constructor(start: (batch: Batch) => void, options: WriterOptions = defaultWriterOptions) {
    this.start = start
    this.options = options
  }

  get isIdle(): boolean {
    return this.inFlight === null && this.appends.length === 0 && this.settles.length === 0
  }

  append(append: Append): void {
    this.appends.push(append)
  }

  settle(delivery: Settle): void {
    this.settles.push(delivery)
    this.settleCount += 1
    if (this.settles.length >= this.options.settlesDueAt) this.areSettlesDue = true
  }

  /** What waits to be settled goes with the next flush. */
  callSettles(): void {
    this.areSettlesDue = true
  }

  /** Calls back when every settle taken so far is committed, at once if it is. They are due from now on. */
  whenSettled(done: () => void): void {
    if (this.settledCount === this.settleCount) return done()
    this.areSettlesDue = true
    this.settleWaiters.push({ count: this.settleCount, done })
  }

  /** Whether a settle of this recipient is not committed. Looks at all that wait. */
  hasSettlesOf({ meshId, peer }: Pick<SessionRef, 'meshId' | 'peer'>): boolean {
    const isOf = (settle: Settle) => (settle.recipient === peer || settle.holder === peer) && settle.meshId === meshId
    return this.settles.some(isOf) || this.inFlight?.settles.some(isOf) === true
  }

  /** Starts a commit if none is in flight and something is due. */
  flush(): void {
    if (this.inFlight !== null) return
    const settles = this.areSettlesDue ? take(this.settles, this.options.settlesMax) : []
    if (this.appends.length === 0 && settles.length === 0) return
    this.areSettlesDue = this.areSettlesDue && this.settles.length > 0
    this.inFlight = { appends: this.takeAppends(), settles }
    this.start(this.inFlight)
  }

  succeeded(): void {
    this.settledCount += this.inFlight?.settles.length ?? 0
    this.inFlight = null
    while (this.settleWaiters.length > 0 && this.settleWaiters[0]!.count <= this.settledCount)
      this.settleWaiters.shift()!.done()
  }

  /**
   * The commit's answer is a failure or unknown. Answers the appends that are now without one: the batch's, and all that
   * waited behind it, since storing those first would turn the order round. Settles wait for the next commit; doing one
   * twice does no harm.
   */
  failed(): Append[] {
    const failed = [...(this.inFlight?.appends ?? []), ...this.appends]
    this.settles = [...(this.inFlight?.settles ?? []), ...this.settles]
    this.areSettlesDue = true
    this.appends = []
    this.inFlight = null
    return failed
  }

  private takeAppends(): Append[] {
    const { appendsMax, appendBytesMax } = this.options
    let count = 0
    let byteCount = 0
    let body: SharedBody | null = null
    while (count < this.appends.length && count < appendsMax && (count === 0 || byteCount < appendBytesMax)) {
      const append = this.appends[count]!
      byteCount += append.envelope.length
      if (append.body && append.body !== body) byteCount += append.body.bytes.length
      body = append.body
      count += 1
    }
    // A broadcast is not cut in two: its body, stored by the first half, would put the second one's commit in doubt.
    while (body !== null && this.appends[count]?.body === body) count += 1
    return take(this.appends, count)
  }
}

/** Removes the first `count` items; all of them without a copy of what stays. */
function take<T>(items: T[], count: number): T[] {
  return items.splice(0, Math.min(count, items.length))
}
