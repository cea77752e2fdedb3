import type { StreamPosition } from '@sealpost/identity'
import { isSameBytes } from '@sealpost/std'

/**
 * Which numbers of one stream were seen, as ranges: a stream without holes is one range however long it is. Numbers from
 * before the first one seen are unknown rather than seen: a former life of the process may have left them, so they count
 * as new, once.
 */

/**
 * A recipient's queue holds 10,000 messages by default, so more holes than that can't have been put off. Of more, the
 * oldest hole counts as seen.
 */
const RANGES_MAX = 16_384

export class SequenceTracker {
  /** From, to, from, to …: ascending, both ends included, never touching each other. */
  readonly #ranges: number[]
  /** Stays when the application wants it again: what follows it has no gap before it. */
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

  /** How many are missing between it and the highest one that was seen. */
  missingBefore(seq: number): number {
    return this.#highest === 0 ? 0 : Math.max(0, seq - this.#highest - 1)
  }

  /** -1: seen before. Otherwise it is new, and this number is missing between it and the highest one before it. */
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

  /** It counts as not seen, once more. */
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

  /** Where the first range stands that does not end before `seq`. */
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

/** The oldest makes room; answers it. */
export function addBounded<T>(set: Set<T>, item: T, max: number): T | undefined {
  set.add(item)
  if (set.size <= max) return undefined
  const oldest = set.values().next().value as T
  set.delete(oldest)
  return oldest
}

/**
 * The newest link of one stream. Each envelope names the hash of the header before it, so that two envelopes for one place
 * show, with either cause: a thief of a box key, who can write in its owner's name, or a sender that was restored from a
 * copy. Only what came in this life of the process is known.
 */

/** `taken`: another envelope holds its place. `forked`: it follows another envelope than the one that came before it. */
type ChainVerdict = 'sound' | 'taken' | 'forked'

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
