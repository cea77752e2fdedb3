/**
 * Which numbers of one stream were seen: a high-water mark and a few holes below it, so its size does not grow with the
 * stream. Numbers from before the first one seen are unknown rather than seen: a former life of the process may have
 * left them, so they count as new, once.
 */
const HOLES_MAX = 64
/** A recipient's queue holds 10,000 messages by default; more than that can't have been put off. */
const PUT_OFF_MAX = 16_384
const BEFORE_MAX = 1_024

export class StreamMark {
  private first = 0
  private highest = 0
  /** Skipped and not seen since, oldest first. One that was pushed out counts as seen. */
  private readonly holes = new Set<number>()
  /** Seen, and to be seen once more because the application asked for it. */
  private readonly putOff = new Set<number>()
  /** Seen below the first one. One that was pushed out counts as not seen: better twice than never. */
  private readonly before = new Set<number>()

  get holeCount(): number {
    return this.holes.size
  }

  /** -1: seen before. Otherwise it is new, and so many are missing between it and the highest one before it. */
  note(seq: number): number {
    if (this.highest === 0) this.first = seq
    else if (seq > this.highest) return this.rise(seq)
    else return this.isNewBelow(seq) ? 0 : -1
    this.highest = seq
    return 0
  }

  /** The application wants it again. */
  reopen(seq: number): void {
    addBounded(this.putOff, seq, PUT_OFF_MAX)
  }

  private rise(seq: number): number {
    const missing = seq - this.highest - 1
    for (let hole = Math.max(this.highest + 1, seq - HOLES_MAX); hole < seq; hole++)
      addBounded(this.holes, hole, HOLES_MAX)
    this.highest = seq
    return missing
  }

  private isNewBelow(seq: number): boolean {
    if (this.putOff.size > 0 && this.putOff.delete(seq)) return true
    if (this.holes.size > 0 && this.holes.delete(seq)) return true
    if (seq >= this.first || this.before.has(seq)) return false
    addBounded(this.before, seq, BEFORE_MAX)
    return true
  }
}

/** The oldest makes room. */
export function addBounded<T>(set: Set<T>, item: T, max: number): void {
  set.add(item)
  if (set.size > max) set.delete(set.values().next().value as T)
}
