/**
 * What a recipient's session may be given next. All ways in which a delivery can reach it meet here, because order
 * (P6) allows only one of them at a time:
 *
 * - a *claim* takes what waits in the queue; one is in flight at most;
 * - a *birth lease* lets an envelope through right after its commit, only when nothing waits, no claim is in flight and
 *   no envelope without a birth lease is on its way to the queue;
 * - a *fence* voids everything that was leased to the session, after an answer was lost.
 */
import type { DeliveryId, Millis } from '@sealpost/std'

export interface Unsettled {
  readonly priority: number
  readonly pushedAtMs: Millis
  readonly byteCount: number
  /** Its lease is over: it fills no room in the window, and may be pushed again. It can still be settled. */
  isLapsed: boolean
}

/** What may be on its way to one recipient: deliveries, as it asked for, and bytes, as the broker's memory allows. */
export interface Window {
  readonly count: number
  readonly byteCount: number
}

export class Credit {
  /** Pushed and not settled, oldest first. */
  readonly unsettled = new Map<DeliveryId, Unsettled>()
  isCongested = false
  private window: Window
  /** Of the unsettled, those whose lease may still hold. */
  private held = 0
  private heldBytes = 0
  private births = 0
  private birthBytes = 0
  private plain = 0
  private isClaiming = false
  private isFencing = false
  /** Whether something may wait unclaimed. True at first: only a claim that came back short proves the opposite. */
  private hasBacklog = true

  private readonly isBirthLeaseOn: boolean

  constructor(window: Window, isBirthLeaseOn: boolean) {
    this.window = window
    this.isBirthLeaseOn = isBirthLeaseOn
  }

  private get free(): Window {
    return {
      count: this.window.count - this.held - this.births,
      byteCount: this.window.byteCount - this.heldBytes - this.birthBytes,
    }
  }

  resize(count: number): void {
    this.window = { ...this.window, count }
  }

  private get hasRoom(): boolean {
    return this.held + this.births < this.window.count && this.heldBytes + this.birthBytes < this.window.byteCount
  }

  /** Something waits for this session, or may. */
  noticeBacklog(): void {
    this.hasBacklog = true
  }

  /** Counts an envelope on its way to the queue; answers whether it may ask for a birth lease. */
  admitAppend(byteCount: number): boolean {
    const isCaughtUp = !this.hasBacklog && !this.isClaiming && !this.isFencing && this.plain === 0
    const mayBeBorn = this.isBirthLeaseOn && isCaughtUp && !this.isCongested && this.hasRoom
    if (mayBeBorn) {
      this.births += 1
      this.birthBytes += byteCount
    } else this.plain += 1
    return mayBeBorn
  }

  /** The envelope's answer came. Without a lease it waits in the queue now. */
  appendAnswered(answer: { hadBirth: boolean; isWaiting: boolean; byteCount: number }): void {
    if (answer.hadBirth) {
      this.births -= 1
      this.birthBytes -= answer.byteCount
    } else this.plain -= 1
    if (answer.isWaiting) this.hasBacklog = true
  }

  /** How much to claim now, if it is the moment; it counts as started then. */
  startClaim(): Window | null {
    if (!this.hasBacklog || this.isClaiming || this.isFencing || this.isCongested || this.births > 0) return null
    // A claim costs much the same for one delivery as for many: wait until a good part of the window is free.
    const { free, window } = this
    if (free.count < Math.max(1, window.count >> 2) || free.byteCount < window.byteCount >> 2) return null
    this.isClaiming = true
    this.hasBacklog = false // before the claim, so that what arrives meanwhile sets it again
    return free
  }

  claimAnswered(answer: { mayHaveMore: boolean }): void {
    this.isClaiming = false
    if (answer.mayHaveMore) this.hasBacklog = true
  }

  /** Answers false when a fence is under way already. */
  startFence(): boolean {
    this.hasBacklog = true
    if (this.isFencing) return false
    this.isFencing = true
    return true
  }

  fenceAnswered(): void {
    this.isFencing = false
  }

  get isFenced(): boolean {
    return this.isFencing
  }

  pushed(id: DeliveryId, unsettled: Omit<Unsettled, 'isLapsed'>): void {
    this.settled(id) // pushed again: it counts once
    this.unsettled.set(id, { ...unsettled, isLapsed: false })
    this.held += 1
    this.heldBytes += unsettled.byteCount
  }

  /** Answers what was settled, or nothing when this session holds no such delivery. */
  settled(id: DeliveryId): Unsettled | undefined {
    const unsettled = this.unsettled.get(id)
    if (!unsettled) return undefined
    this.unsettled.delete(id)
    if (!unsettled.isLapsed) this.release(unsettled)
    return unsettled
  }

  /**
   * Frees the room of what was pushed before `pushedBeforeMs`, a lease ago: without that a recipient that settled nothing
   * of a full window would never be pushed anything again. What is very old is forgotten.
   */
  lapse(pushedBeforeMs: Millis, forgetBeforeMs: Millis): void {
    for (const [id, unsettled] of this.unsettled) {
      if (unsettled.pushedAtMs >= pushedBeforeMs) return // the oldest come first
      if (!unsettled.isLapsed) this.release(unsettled)
      unsettled.isLapsed = true
      if (unsettled.pushedAtMs < forgetBeforeMs) this.unsettled.delete(id)
    }
  }

  private release({ byteCount }: Unsettled): void {
    this.held -= 1
    this.heldBytes -= byteCount
  }
}
