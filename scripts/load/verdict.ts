/**
 * Joins what the senders wrote down with what the recipients did, message by message, by the envelope id: a push often
 * overtakes the sender's ack, and a message whose ack never came may well have arrived.
 */
import { build, type Histogram } from 'hdr-histogram-js'
import { dueMs, type Plan, type Share, senderOf } from './plan.ts'
import { type Receipts, type Sends, slotOf } from './records.ts'

export interface Percentiles {
  readonly p50: number
  readonly p95: number
  readonly p99: number
  readonly max: number
}

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
  readonly ackMs: Percentiles
  readonly e2eMs: Percentiles
  /** From the application's call of `send` to its ack: the wait for the window included. */
  readonly sendCallMs: Percentiles
  /** From the time it was due to the call: the generator's own lateness. Open loop only. */
  readonly callLateMs: Percentiles | null
}

export interface Records {
  readonly share: Share
  readonly sends: Sends
  readonly receipts: Receipts
}

export interface Run {
  readonly plan: Plan
  readonly startMs: number
  readonly records: readonly Records[]
}

/** @param isWaiting - which of these envelopes the broker still has; asked about acked ones that did not arrive */
export async function judge(run: Run, isWaiting: (ids: string[]) => Promise<Set<string>>): Promise<Verdict> {
  const { plan, records } = run
  const ids = new EnvelopeIndex(plan.total)
  for (const { share, sends } of records) eachSend(plan, share, sends, (send) => ids.add(send))
  const deliveredAtMs = new Float64Array(plan.total).fill(Number.NaN)
  const received = countReceipts(run, ids, deliveredAtMs)
  const tally = new Tally(run, deliveredAtMs)
  for (const { share, sends } of records) eachSend(plan, share, sends, (send) => tally.take(sends, send))
  const waiting = tally.missing.length === 0 ? new Set<string>() : await isWaiting(tally.missing)
  return tally.verdict(received, waiting)
}

/** Counts and latencies of all messages, from their senders' side. */
class Tally {
  /** Envelope ids that were acked and did not arrive. */
  readonly missing: string[] = []
  readonly #run: Run
  readonly #deliveredAtMs: Float64Array
  readonly #count = { sent: 0, acked: 0, delivered: 0 }
  readonly #latencies = { ack: histogram(), e2e: histogram(), call: histogram(), late: histogram() }
  #firstMs = Infinity
  #lastMs = 0

  constructor(run: Run, deliveredAtMs: Float64Array) {
    this.#run = run
    this.#deliveredAtMs = deliveredAtMs
  }

  take(sends: Sends, { number, slot, id }: Send): void {
    const { plan, startMs } = this.#run
    const calledAtMs = sends.calledAtMs[slot]!
    const ackedAtMs = sends.ackedAtMs[slot]!
    const deliveredAtMs = this.#deliveredAtMs[number]!
    // In the open loop a message counts from the moment it was due, whatever held up its call.
    const dueAtMs = plan.rate === null ? calledAtMs : startMs + dueMs(plan.rate, number)
    const sentAtMs = plan.rate === null ? sends.admittedAtMs[slot]! : dueAtMs
    this.#count.sent += 1
    this.#firstMs = Math.min(this.#firstMs, dueAtMs)
    note(this.#latencies.late, calledAtMs - dueAtMs)
    if (!Number.isNaN(ackedAtMs)) {
      this.#count.acked += 1
      this.#lastMs = Math.max(this.#lastMs, ackedAtMs)
      note(this.#latencies.ack, ackedAtMs - sentAtMs)
      note(this.#latencies.call, ackedAtMs - calledAtMs)
      if (Number.isNaN(deliveredAtMs)) this.missing.push(id.toString('hex'))
    }
    if (Number.isNaN(deliveredAtMs)) return
    this.#count.delivered += 1
    this.#lastMs = Math.max(this.#lastMs, deliveredAtMs)
    if (!Number.isNaN(sentAtMs)) note(this.#latencies.e2e, deliveredAtMs - sentAtMs)
  }

  verdict(received: ReceivedCounts, waiting: Set<string>): Verdict {
    const { sent, acked } = this.#count
    const lost = this.missing.filter((id) => !waiting.has(id)).length
    return {
      ...this.#count,
      timedOut: sent - acked + this.missing.length - lost,
      lost,
      ...received,
      wallMs: Math.max(0, this.#lastMs - this.#firstMs),
      ackMs: percentiles(this.#latencies.ack),
      e2eMs: percentiles(this.#latencies.e2e),
      sendCallMs: percentiles(this.#latencies.call),
      callLateMs: this.#run.plan.rate === null ? null : percentiles(this.#latencies.late),
    }
  }
}

interface Send {
  readonly number: number
  readonly slot: number
  /** Zeros until acked. */
  readonly id: Buffer
}

function eachSend(plan: Plan, share: Share, sends: Sends, visit: (send: Send) => void): void {
  for (let number = 0; number < plan.total; number++) {
    const sender = senderOf(plan, number)
    if (sender < share.first || sender >= share.end) continue
    const slot = slotOf(plan, share, number)
    if (Number.isNaN(sends.calledAtMs[slot])) continue
    visit({ number, slot, id: sends.envelopeIds.subarray(slot * 16, slot * 16 + 16) })
  }
}

type ReceivedCounts = Pick<Verdict, 'duplicates' | 'misdelivered' | 'outOfOrder'>

function countReceipts({ plan, records }: Run, ids: EnvelopeIndex, deliveredAtMs: Float64Array): ReceivedCounts {
  const count = { duplicates: 0, misdelivered: 0, outOfOrder: 0 }
  const latest = new Map<number, number>() // of each pair
  for (const { receipts } of records) {
    for (let row = 0; row < receipts.count; row++) {
      const claimed = receipts.numbers[row]!
      const known = ids.numberOf(receipts.envelopeIds.subarray(row * 16, row * 16 + 16))
      // An id without an ack is not known here; then the opened body's own word is all there is.
      if (receipts.faults[row] !== 0 || (known !== undefined && known !== claimed)) {
        count.misdelivered += 1
        continue
      }
      if (!Number.isNaN(deliveredAtMs[claimed])) {
        count.duplicates += 1
        continue
      }
      deliveredAtMs[claimed] = receipts.atMs[row]!
      const pair = senderOf(plan, claimed) * plan.peers + receipts.recipients[row]!
      if (claimed < (latest.get(pair) ?? -1)) count.outOfOrder += 1
      else latest.set(pair, claimed)
    }
  }
  return count
}

/** From envelope ids to numbers, an open table of plain integers: a Map of a million strings takes seconds and 100 MB. */
class EnvelopeIndex {
  readonly #slots: Uint32Array
  readonly #ids: Buffer
  readonly #mask: number

  constructor(total: number) {
    const size = 2 ** Math.ceil(Math.log2(total * 2 + 2))
    this.#slots = new Uint32Array(size)
    this.#ids = Buffer.alloc(total * 16)
    this.#mask = size - 1
  }

  add({ number, id }: Send): void {
    if (id[6] === 0) return // never acked: the version of a real one stands there
    id.copy(this.#ids, number * 16)
    let slot = this.#first(id)
    while (this.#slots[slot] !== 0) slot = (slot + 1) & this.#mask
    this.#slots[slot] = number + 1
  }

  numberOf(id: Buffer): number | undefined {
    for (let slot = this.#first(id); this.#slots[slot] !== 0; slot = (slot + 1) & this.#mask) {
      const number = this.#slots[slot]! - 1
      if (this.#ids.compare(id, 0, 16, number * 16, number * 16 + 16) === 0) return number
    }
    return undefined
  }

  /** The last bytes of a version 7 UUID are random. */
  #first(id: Buffer): number {
    return id.readUInt32LE(12) & this.#mask
  }
}

/** Microseconds, three digits, up to an hour. */
function histogram(): Histogram {
  return build({ lowestDiscernibleValue: 1, highestTrackableValue: 3_600_000_000, numberOfSignificantValueDigits: 3 })
}

function note(into: Histogram, ms: number): void {
  into.recordValue(Math.min(3_600_000_000, Math.max(1, Math.round(ms * 1000))))
}

function percentiles(of: Histogram): Percentiles {
  if (of.totalCount === 0) return { p50: 0, p95: 0, p99: 0, max: 0 }
  // A bucket answers with its upper end, which may lie above the largest value that was in it.
  const at = (percent: number) => Math.min(of.getValueAtPercentile(percent), of.maxValue) / 1000
  return { p50: at(50), p95: at(95), p99: at(99), max: of.maxValue / 1000 }
}
