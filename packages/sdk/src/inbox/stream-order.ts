/**
 * Keeps the order of streams. Tracks which numbers were seen and whether each message follows the previous one, and
 * holds messages back until an earlier one arrives. Pure and synchronous.
 *
 * A lane contains the messages of one sender at one priority. It can contain several streams: a sender begins a new one
 * after a refusal, and each of its processes has its own. All messages of a lane wait behind a held message; otherwise
 * a message of a new stream would overtake it (P6).
 */

import type { StreamPosition } from '@sealpost/identity'
import type { Priority } from '@sealpost/protocol'
import { type DeliveryId, type EnvelopeId, isSameBytes, type Millis, type PeerKey } from '@sealpost/std'

export interface ArrivedMessage {
  /** The id of the most recent push. */
  readonly deliveryId: DeliveryId
  readonly attempt: number
  readonly sender: PeerKey
  readonly envelopeId: EnvelopeId
  readonly stream: StreamPosition | null
  readonly headerHash: Uint8Array | null
}

/**
 * The maximum number of held messages of all senders. Otherwise, a sender that leaves gaps could use up the session's
 * credit.
 */
const HELD_MAX = 64
/** The maximum size of all held messages in bytes: a quarter of a session's default byte credit. */
const HELD_BYTES_MAX = 256 * 1024
/** How long a message is held: less than the default lease, so that it is not pushed again. */
export const HOLD_MS = 2_000

/** A message in a lane. Without a stream, it is never held. */
export interface InLane extends ArrivedMessage {
  readonly priority: Priority
}

interface Held<M> {
  readonly message: M
  readonly lane: string
  readonly byteCount: number
  readonly dueAtMs: Millis
}

export class ReorderBuffer<M extends InLane> {
  #held: Held<M>[] = []
  readonly #heldMax: number

  /**
   * `credit`: the maximum number of unsettled deliveries. Held messages take at most a quarter of it, so that the
   * missing one fits.
   */
  constructor(credit: number) {
    this.#heldMax = Math.min(HELD_MAX, credit >> 2)
  }

  get isEmpty(): boolean {
    return this.#held.length === 0
  }

  get wakeAtMs(): Millis {
    let atMs = Infinity
    for (const { dueAtMs } of this.#held) atMs = Math.min(atMs, dueAtMs)
    return atMs
  }

  /** Holds a message. Returns whether it was already held. */
  hold(message: M, byteCount: number, nowMs: Millis): boolean {
    const lane = laneOf(message)
    const at = this.#held.findIndex((held) => held.lane === lane && held.message.envelopeId === message.envelopeId)
    const dueAtMs = at < 0 ? nowMs + HOLD_MS : this.#held.splice(at, 1)[0]!.dueAtMs
    this.#held.splice(this.#placeOf(message, lane), 0, { message, lane, byteCount, dueAtMs })
    return at >= 0
  }

  takeNext(of: M, mayPass: (message: M) => boolean): M | undefined {
    const lane = laneOf(of)
    const first = this.#held.find((held) => held.lane === lane)
    return first && mayPass(first.message) ? this.#take((held) => held === first)[0] : undefined
  }

  /**
   * Takes messages that were held for `HOLD_MS`, and all earlier ones in their lanes, in order. If a limit is exceeded,
   * empties the oldest lanes.
   */
  takeDue(nowMs: Millis): M[] {
    const taken = this.#take(({ lane }, at) =>
      this.#held.some((later, i) => i >= at && later.lane === lane && nowMs >= later.dueAtMs),
    )
    while (this.#isCrowded) {
      const { lane: oldest } = this.#held[0]!
      taken.push(...this.#take(({ lane }) => lane === oldest))
    }
    return taken
  }

  /** Call when the session ends. The broker pushes these messages again in the next one. */
  clear(): void {
    this.#held = []
  }

  #take(isTaken: (held: Held<M>, at: number) => boolean): M[] {
    const taken = this.#held.filter(isTaken)
    this.#held = this.#held.filter((held) => !taken.includes(held))
    return taken.map(({ message }) => message)
  }

  get #isCrowded(): boolean {
    const held = this.#held
    return held.length > this.#heldMax || held.reduce((sum, { byteCount }) => sum + byteCount, 0) > HELD_BYTES_MAX
  }

  /**
   * Returns where a message belongs. Within a stream, its sealed number decides, so a broker that sends wrong ids can't
   * change the order; between streams, the delivery id decides.
   */
  #placeOf({ deliveryId, stream }: M, lane: string): number {
    const { streamId, seq } = stream!
    const isOwn = (held: Held<M>) => held.lane === lane && held.message.stream!.streamId === streamId
    const from = this.#held.findLastIndex((held) => isOwn(held) && held.message.stream!.seq < seq) + 1
    const place = this.#held.findIndex(
      (held, i) =>
        i >= from &&
        held.lane === lane &&
        (isOwn(held) ? held.message.stream!.seq > seq : held.message.deliveryId > deliveryId),
    )
    return place < 0 ? this.#held.length : place
  }
}

const laneOf = ({ sender, priority }: InLane): string => sender + priority

/**
 * The maximum number of ranges. A recipient's queue holds 10,000 messages by default, so more gaps can't occur; the
 * oldest then counts as seen.
 */
const RANGES_MAX = 16_384

/**
 * Tracks the seen numbers of one stream as ranges. A stream without gaps is a single range of any length. Numbers
 * before the first one seen are unknown, because an earlier process may have handled them, so each counts as new once.
 */
export class SequenceTracker {
  /** Alternating first and last numbers of the ranges: ascending, inclusive and never adjacent. */
  readonly #ranges: number[]
  /** The highest number seen. `reopen` does not lower it, because later messages would then report a gap. */
  #highest: number

  constructor(ranges: readonly number[] = []) {
    this.#ranges = [...ranges]
    this.#highest = ranges.at(-1) ?? 0
  }

  get rangeCount(): number {
    return this.#ranges.length / 2
  }

  toRanges(): number[] {
    return this.#ranges.slice()
  }

  missingBefore(seq: number): number {
    return this.#highest === 0 ? 0 : Math.max(0, seq - this.#highest - 1)
  }

  /** Marks the number as seen. Returns -1 if it already was; otherwise, the size of the gap before it. */
  note(seq: number): number {
    const highest = this.#highest
    if (seq <= highest) return this.#fill(seq) ? 0 : -1
    const missing = this.missingBefore(seq)
    this.#highest = seq
    const last = this.#ranges.length - 1
    if (last > 0 && this.#ranges[last] === seq - 1) this.#ranges[last] = seq
    else this.#insert(last + 1, seq)
    return missing
  }

  reopen(seq: number): void {
    const at = this.#rangeAt(seq)
    const from = this.#ranges[at]
    if (from === undefined || from > seq) return
    const to = this.#ranges[at + 1]!
    const rest = [from, seq - 1, seq + 1, to]
    this.#ranges.splice(at, 2, ...rest.slice(from === seq ? 2 : 0, to === seq ? 2 : 4))
  }

  #fill(seq: number): boolean {
    const ranges = this.#ranges
    const at = this.#rangeAt(seq)
    const from = ranges[at]
    if (from !== undefined && from <= seq) return false
    const isAfterOne = at > 0 && ranges[at - 1] === seq - 1
    const isBeforeOne = from === seq + 1
    if (isAfterOne && isBeforeOne) ranges.splice(at - 1, 2)
    else if (isAfterOne) ranges[at - 1] = seq
    else if (isBeforeOne) ranges[at] = seq
    else this.#insert(at, seq)
    return true
  }

  #insert(at: number, seq: number): void {
    this.#ranges.splice(at, 0, seq, seq)
    if (this.rangeCount > RANGES_MAX) this.#ranges.splice(1, 2)
  }

  /** Returns the index of the first range that does not end before `seq`. */
  #rangeAt(seq: number): number {
    const ranges = this.#ranges
    let low = 0
    let high = ranges.length / 2
    while (low < high) {
      const middle = (low + high) >>> 1
      if (ranges[2 * middle + 1]! < seq) low = middle + 1
      else high = middle
    }
    return 2 * low
  }
}

/** Adds an item. Returns the oldest item if it was removed to keep at most `max`. */
export function addBounded<T>(set: Set<T>, item: T, max: number): T | undefined {
  set.add(item)
  if (set.size <= max) return undefined
  const oldest = set.values().next().value as T
  set.delete(oldest)
  return oldest
}

/** `taken`: another envelope has the position. `forked`: the envelope does not follow the one received before it. */
type ChainVerdict = 'sound' | 'taken' | 'forked'

/**
 * Tracks the newest link of one stream. Each envelope contains the hash of the previous header, so two envelopes for
 * one position are detected. They mean that someone has stolen a box key and writes in its owner's name, or that the
 * sender was restored from a copy. Only messages that this process received are tracked.
 */
export class HashChain {
  #seq = 0
  #hash: Uint8Array | null = null

  note({ seq, prev }: StreamPosition, headerHash: Uint8Array): ChainVerdict {
    const last = this.#seq
    const hash = this.#hash
    if (seq < last) return 'sound'
    if (seq === last) return isSameBytes(hash!, headerHash) ? 'sound' : 'taken'
    this.#seq = seq
    this.#hash = headerHash
    return hash && seq === last + 1 && !isSameBytes(hash, prev) ? 'forked' : 'sound'
  }
}
