/**
 * Joins senders' and recipients' records by message. Each side may be missing or first, and both must have the same
 * envelope id.
 *
 * Keeps only messages of which one side is known, and one bit for each that has arrived. Judging 2.4 million takes five
 * seconds and 85 MB.
 */

import { type Bin, Latencies, type Percentiles, type Quantile } from '@sealpost/harness/report/latencies'
import { Bits, dueMs, type Plan, senderOf } from '../generators/plan.ts'
import { ID_BYTES, inTime, ReceiptCursor, SendCursor } from '../generators/record-log.ts'

export interface Verdict {
  readonly sent: number
  readonly acked: number
  readonly delivered: number
  /** The number of messages neither acked nor delivered in time, or acked but left at the broker. */
  readonly timedOut: number
  /** The number of messages acked, not delivered, and no longer at the broker. */
  readonly lost: number
  /** The number of messages passed to the application repeatedly. */
  readonly duplicates: number
  /** The number of messages with a wrong recipient, sender, body or id. */
  readonly misdelivered: number
  readonly outOfOrder: number
  readonly wallMs: number
  /** The time from the first to the last arrival. */
  readonly arrivingMs: number
  /** A backlog's drain, if the run sets `pairs`. */
  readonly drain: DrainTimes | null
  readonly ackMs: Percentiles
  readonly e2eMs: Percentiles
  readonly e2eSpectrum: readonly Quantile[]
  readonly e2eBins: readonly Bin[]
  /** The time from `send()` to the ack, with the wait for the window. */
  readonly sendCallMs: Percentiles
  /** The time from `send()` to the push, with the wait for the window. */
  readonly callToPushMs: Percentiles
  /** How late the generator's call was. Null without a rate. */
  readonly callLateMs: Percentiles | null
  /** The latencies by span in which messages were sent. */
  readonly spans: readonly SpanLatencies[]
}

export interface SpanLatencies {
  readonly delivered: number
  readonly e2eMs: Percentiles
}

export interface RunRecords {
  readonly plan: Plan
  readonly startMs: number
  /** The number of calls to `send()`, even without a reply. */
  readonly called: number
  /** The prefix of each generator's files. */
  readonly records: readonly string[]
  /** The length of a span, or null for no spans. */
  readonly spanMs: number | null
  /** The number of pairs in a backlog, for `Verdict.drain`. */
  readonly pairs?: number
}

/** The share of pairs that ends the warm-up, because a few senders are late in the backlog. */
const WARM_PAIRS = 0.9

/**
 * The times of a draining backlog. In the warm-up, until nine tenths of the pairs have a message, recipients connect
 * and agree on keys. The rest is divided into tenths.
 */
export interface DrainTimes {
  readonly warmUp: { readonly messages: number; readonly ms: number }
  readonly tenthMessages: number
  /** The time of each complete tenth. */
  readonly tenthsMs: readonly number[]
}

/** Judges a run. @param waitingOf - returns which acked envelopes without arrival the broker has */
export async function judge(run: RunRecords, waitingOf: (ids: string[]) => Promise<Set<string>>): Promise<Verdict> {
  const cursors = run.records.flatMap((records) => [new SendCursor(records), new ReceiptCursor(records)])
  const tally = new Tally(run)
  for (const row of inTime(cursors)) {
    if (row.kind === 'send') tally.takeAnswer(row)
    else tally.takeReceipt(row)
  }
  for (const cursor of cursors) cursor.close()
  const missing = tally.missing
  const waiting = missing.length === 0 ? new Set<string>() : await waitingOf(missing)
  return tally.verdict(missing.filter((id) => !waiting.has(id)).length)
}

class Tally {
  readonly #run: RunRecords
  readonly #count = { acked: 0, delivered: 0, duplicates: 0, misdelivered: 0, outOfOrder: 0 }
  readonly #latencies = {
    ack: new Latencies(),
    e2e: new Latencies(),
    call: new Latencies(),
    callToPush: new Latencies(),
    late: new Latencies(),
  }
  readonly #spans: Latencies[] = []
  readonly #arrived: Bits
  /** Acked messages that have not arrived: when sent, and when `send()` was called. */
  readonly #acked = new Waiting()
  /** Messages that have arrived without an ack. */
  readonly #early = new Waiting()
  /** The newest message of each pair. */
  readonly #latest = new Map<number, number>()
  #firstMs = Infinity
  #lastMs = 0
  #firstArrivalMs = Infinity
  #lastArrivalMs = 0
  readonly #drainClock: DrainClock | null

  constructor(run: RunRecords) {
    this.#run = run
    this.#arrived = new Bits(run.plan.total)
    this.#drainClock = run.pairs === undefined ? null : new DrainClock(run.plan.total, run.pairs)
  }

  takeAnswer(row: SendCursor): void {
    const { number, calledAtMs, atMs } = row
    // In the open loop, a message counts from its due time.
    const dueAtMs = this.#dueAtMs(number) ?? calledAtMs
    this.#firstMs = Math.min(this.#firstMs, dueAtMs)
    this.#latencies.late.note(calledAtMs - dueAtMs)
    if (!row.isAcked) return
    const sentAtMs = this.#dueAtMs(number) ?? row.admittedAtMs
    this.#count.acked += 1
    this.#lastMs = Math.max(this.#lastMs, atMs)
    this.#latencies.ack.note(atMs - sentAtMs)
    this.#latencies.call.note(atMs - calledAtMs)
    this.#join(row, sentAtMs)
  }

  takeReceipt(row: ReceiptCursor): void {
    const { number, atMs } = row
    if (row.faults !== 0 || (this.#acked.has(number) && !this.#acked.isUnder(number, row.id))) {
      this.#count.misdelivered += 1
      return
    }
    if (this.#arrived.has(number)) {
      this.#count.duplicates += 1
      return
    }
    this.#arrive(row)
    if (this.#acked.has(number)) this.#noteDelivery(this.#acked.take(number), atMs)
    else this.#early.put(number, row)
  }

  /** The ids of acked envelopes that did not arrive. */
  get missing(): string[] {
    return this.#acked.ids
  }

  verdict(lost: number): Verdict {
    const { plan, called, spanMs } = this.#run
    for (const [number, atMs] of this.#early.times()) {
      const dueAtMs = this.#dueAtMs(number)
      if (dueAtMs !== null) this.#noteLatency(dueAtMs, atMs) // without an ack, the time of the call is unknown
    }
    const { acked } = this.#count
    return {
      sent: called,
      ...this.#count,
      timedOut: called - acked + this.missing.length - lost,
      lost,
      wallMs: Math.max(0, this.#lastMs - this.#firstMs),
      arrivingMs: Math.max(0, this.#lastArrivalMs - this.#firstArrivalMs),
      drain: this.#drainClock?.times ?? null,
      ackMs: this.#latencies.ack.percentiles,
      e2eMs: this.#latencies.e2e.percentiles,
      e2eSpectrum: this.#latencies.e2e.spectrum,
      e2eBins: this.#latencies.e2e.bins,
      sendCallMs: this.#latencies.call.percentiles,
      callToPushMs: this.#latencies.callToPush.percentiles,
      callLateMs: plan.rate === null ? null : this.#latencies.late.percentiles,
      spans: spanMs === null ? [] : this.#spans.map((of) => ({ delivered: of.count, e2eMs: of.percentiles })),
    }
  }

  #join({ number, id, calledAtMs }: SendCursor, sentAtMs: number): void {
    const sent = { atMs: sentAtMs, calledAtMs, id }
    if (!this.#early.has(number)) return this.#acked.put(number, sent)
    const isSame = this.#early.isUnder(number, id)
    const arrived = this.#early.take(number)
    if (isSame) return this.#noteDelivery(sent, arrived.atMs)
    this.#arrived.delete(number)
    this.#count.delivered -= 1
    this.#count.misdelivered += 1
    this.#acked.put(number, sent)
  }

  #arrive({ number, recipient, atMs }: ReceiptCursor): void {
    const { plan } = this.#run
    this.#arrived.add(number)
    this.#count.delivered += 1
    this.#lastMs = Math.max(this.#lastMs, atMs)
    this.#firstArrivalMs = Math.min(this.#firstArrivalMs, atMs)
    this.#lastArrivalMs = Math.max(this.#lastArrivalMs, atMs)
    const pair = senderOf(plan, number) * plan.peers + recipient
    if (number < (this.#latest.get(pair) ?? -1)) this.#count.outOfOrder += 1
    else this.#latest.set(pair, number)
    this.#drainClock?.arrived(atMs, this.#latest.size)
  }

  #noteDelivery(sent: Times, arrivedAtMs: number): void {
    this.#latencies.callToPush.note(arrivedAtMs - sent.calledAtMs)
    this.#noteLatency(sent.atMs, arrivedAtMs)
  }

  #noteLatency(sentAtMs: number, arrivedAtMs: number): void {
    const ms = arrivedAtMs - sentAtMs
    this.#latencies.e2e.note(ms)
    const { spanMs, startMs } = this.#run
    if (spanMs === null) return
    const span = Math.max(0, Math.floor((sentAtMs - startMs) / spanMs))
    for (let next = this.#spans.length; next <= span; next++) this.#spans.push(new Latencies())
    this.#spans[span]!.note(ms)
  }

  #dueAtMs(number: number): number | null {
    const { plan, startMs } = this.#run
    return plan.rate === null ? null : startMs + dueMs(plan.rate, number)
  }
}

const TENTHS = 10

class DrainClock {
  readonly #total: number
  readonly #pairs: number
  readonly #tenthsMs: number[] = []
  #count = 0
  #fromMs = Infinity
  #warmUp: DrainTimes['warmUp'] | null = null
  #tenth = 0

  constructor(total: number, pairs: number) {
    this.#total = total
    this.#pairs = pairs
  }

  get times(): DrainTimes | null {
    if (!this.#warmUp) return null
    return { warmUp: this.#warmUp, tenthMessages: this.#tenth, tenthsMs: this.#tenthsMs }
  }

  /** Records an arrival. @param pairs - those with a message so far */
  arrived(atMs: number, pairs: number): void {
    this.#fromMs = Math.min(this.#fromMs, atMs)
    this.#count += 1
    if (this.#warmUp) {
      if (this.#count === this.#tenth && this.#tenthsMs.length < TENTHS) this.#tenthsMs.push(this.#restart(atMs))
    } else if (pairs >= WARM_PAIRS * this.#pairs) {
      const messages = this.#count
      this.#warmUp = { messages, ms: this.#restart(atMs) }
      this.#tenth = Math.floor((this.#total - messages) / TENTHS)
    }
  }

  #restart(atMs: number): number {
    const ms = atMs - this.#fromMs
    this.#fromMs = atMs
    this.#count = 0
    return ms
  }
}

interface Times {
  readonly atMs: number
  readonly calledAtMs: number
}

interface Known {
  readonly atMs: number
  readonly calledAtMs?: number
  readonly id: Buffer
}

/** Messages of which one side is known, in plain arrays. */
class Waiting {
  readonly #slots = new Map<number, number>()
  readonly #free: number[] = []
  #times = new Float64Array(1024)
  #calls = new Float64Array(1024)
  #ids = Buffer.alloc(1024 * ID_BYTES)
  #used = 0

  has(number: number): boolean {
    return this.#slots.has(number)
  }

  /** Adds a message. @param calledAtMs - NaN for a receipt */
  put(number: number, { atMs, calledAtMs = Number.NaN, id }: Known): void {
    const slot = this.#free.pop() ?? this.#used++
    if (slot === this.#times.length) this.#grow()
    this.#slots.set(number, slot)
    this.#times[slot] = atMs
    this.#calls[slot] = calledAtMs
    id.copy(this.#ids, slot * ID_BYTES)
  }

  isUnder(number: number, id: Buffer): boolean {
    const at = this.#slots.get(number)! * ID_BYTES
    return this.#ids.compare(id, 0, ID_BYTES, at, at + ID_BYTES) === 0
  }

  take(number: number): Times {
    const slot = this.#slots.get(number)!
    this.#slots.delete(number)
    this.#free.push(slot)
    return { atMs: this.#times[slot]!, calledAtMs: this.#calls[slot]! }
  }

  *times(): Generator<readonly [number: number, atMs: number]> {
    for (const [number, slot] of this.#slots) yield [number, this.#times[slot]!]
  }

  get ids(): string[] {
    return [...this.#slots.values()].map((slot) =>
      this.#ids.toString('hex', slot * ID_BYTES, slot * ID_BYTES + ID_BYTES),
    )
  }

  #grow(): void {
    const times = new Float64Array(this.#times.length * 2)
    const calls = new Float64Array(this.#calls.length * 2)
    const ids = Buffer.alloc(this.#ids.length * 2)
    times.set(this.#times)
    calls.set(this.#calls)
    this.#ids.copy(ids)
    this.#times = times
    this.#calls = calls
    this.#ids = ids
  }
}
