/**
 * Joins what the senders wrote down with what the recipients did, message by message: a push often overtakes the
 * sender's ack, and a message whose ack never came may well have arrived. Both sides must name the same envelope id.
 *
 * It walks over the files in the order of events and remembers only messages of which one side is missing so far, and a
 * bit for each that arrived: judging 2.4 million messages takes 85 MB in all, 20 more than 100,000, and five seconds.
 */

import { type Bin, Latencies, type Percentiles, type Quantile } from '@sealpost/harness/report/latencies'
import { Bits } from '../generators/bits.ts'
import type { Records } from '../generators/link.ts'
import { dueMs, type Plan, senderOf } from '../generators/plan.ts'
import { inTime, ReceiptCursor, SendCursor } from './cursor.ts'
import { type Times, Waiting } from './waiting.ts'

export interface Verdict {
  readonly sent: number
  readonly acked: number
  readonly delivered: number
  /** Neither acked nor delivered in time, or acked and still waiting in the broker when the time was over. */
  readonly timedOut: number
  /** Acked, not delivered, and no longer with the broker. */
  readonly lost: number
  /** Handed to an application more than once. */
  readonly duplicates: number
  /** To the wrong peer, from the wrong peer, with another body, or under another envelope id. */
  readonly misdelivered: number
  readonly outOfOrder: number
  readonly wallMs: number
  /** From the first to the last message that arrived. */
  readonly arrivingMs: number
  /** The same of each `arrivalStep` messages in turn; a rest that is smaller is left out. */
  readonly stepsMs: readonly number[]
  readonly ackMs: Percentiles
  readonly e2eMs: Percentiles
  readonly e2eSpectrum: readonly Quantile[]
  readonly e2eBins: readonly Bin[]
  /** From the application's call of `send()` to its ack: the wait for the window included. */
  readonly sendCallMs: Percentiles
  /** From the application's call of `send()` to the push: the wait for the window included. */
  readonly callToPushMs: Percentiles
  /** From the time it was due to the call: the generator's own lateness. Open loop only. */
  readonly callLateMs: Percentiles | null
  /** Of the messages sent in each span of time, in order; empty when none was asked for. */
  readonly spans: readonly SpanLatencies[]
}

export interface SpanLatencies {
  readonly delivered: number
  readonly e2eMs: Percentiles
}

export interface Run {
  readonly plan: Plan
  readonly startMs: number
  /** Calls that were made, answered or not. */
  readonly called: number
  /** The generators' files. */
  readonly records: readonly Records[]
  /** The length of a span to be judged on its own; null: none. */
  readonly spanMs: number | null
  /** This number of arrivals is timed together. */
  readonly arrivalStep?: number
}

/** @param isWaiting - which of these envelopes the broker still has; asked about acked ones that did not arrive */
export async function judge(run: Run, isWaiting: (ids: string[]) => Promise<Set<string>>): Promise<Verdict> {
  const cursors = run.records.flatMap((records) => [new SendCursor(records), new ReceiptCursor(records)])
  const tally = new Tally(run)
  for (const row of inTime(cursors)) {
    if (row.kind === 'send') tally.takeAnswer(row)
    else tally.takeReceipt(row)
  }
  for (const cursor of cursors) cursor.close()
  const missing = tally.missing
  const waiting = missing.length === 0 ? new Set<string>() : await isWaiting(missing)
  return tally.verdict(missing.filter((id) => !waiting.has(id)).length)
}

class Tally {
  readonly #run: Run
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
  /** Acked, not arrived: when it counts as sent, and when it was called. */
  readonly #acked = new Waiting()
  /** Arrived, no ack so far: when. */
  readonly #early = new Waiting()
  /** The newest of each pair. */
  readonly #latest = new Map<number, number>()
  #firstMs = Infinity
  #lastMs = 0
  #firstArrivalMs = Infinity
  #lastArrivalMs = 0
  readonly #stepsMs: number[] = []
  #stepFromMs = 0
  #stepCount = 0

  constructor(run: Run) {
    this.#run = run
    this.#arrived = new Bits(run.plan.total)
  }

  takeAnswer(row: SendCursor): void {
    const { number, calledAtMs, atMs } = row
    // In the open loop a message counts from the moment it was due, whatever held up its call.
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

  /** Envelope ids that were acked and did not arrive. */
  get missing(): string[] {
    return this.#acked.ids
  }

  verdict(lost: number): Verdict {
    const { plan, called, spanMs } = this.#run
    for (const [number, atMs] of this.#early.times()) {
      const dueAtMs = this.#dueAtMs(number)
      if (dueAtMs !== null) this.#noteLatency(dueAtMs, atMs) // never acked, so its call is unknown
    }
    const { acked } = this.#count
    return {
      sent: called,
      ...this.#count,
      timedOut: called - acked + this.missing.length - lost,
      lost,
      wallMs: Math.max(0, this.#lastMs - this.#firstMs),
      arrivingMs: Math.max(0, this.#lastArrivalMs - this.#firstArrivalMs),
      stepsMs: this.#stepsMs,
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
    this.#step(atMs)
    const pair = senderOf(plan, number) * plan.peers + recipient
    if (number < (this.#latest.get(pair) ?? -1)) this.#count.outOfOrder += 1
    else this.#latest.set(pair, number)
  }

  #step(atMs: number): void {
    if (this.#stepsMs.length === 0 && this.#stepCount === 0) this.#stepFromMs = atMs
    this.#stepCount += 1
    if (this.#stepCount !== this.#run.arrivalStep) return
    this.#stepsMs.push(atMs - this.#stepFromMs)
    this.#stepFromMs = atMs
    this.#stepCount = 0
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
