/**
 * What a recipient's session may be given next. Three ways lead to it, they share one window, and each sender's mail
 * takes one of them at a time, so that its order stays (P6):
 *
 * - a *claim* takes what waits in the queue; one is in flight at most, and its limit is taken out of the window;
 * - a *birth lease* lets an envelope through right after its commit, while nothing else of its sender is on its way to
 *   this recipient, waits for it, or may be in a claim that is in flight;
 * - a *fence* voids everything that was leased to the session, after an answer was lost.
 */
import type { DeliveryId, Millis, PeerNo } from '@sealpost/std'

export interface Unsettled {
  readonly priority: number
  readonly pushedAtMs: Millis
  readonly byteCount: number
  /** Its lease is over: it fills no room in the window, and may be pushed again. It can still be settled. */
  isLapsed: boolean
}

/** A claim that brings less than it asked for has emptied the queue; so it asks for a few more than are known. */
const CLAIM_SPARE = 8

/** What may be on its way to one recipient: deliveries, as it asked for, and bytes, as the broker's memory allows. */
export interface Window {
  readonly count: number
  readonly byteCount: number
}

/** What one sender has on its way to the recipient, or waiting for it. */
interface Lane {
  births: number
  /** Without a birth lease, and not answered yet. */
  plain: number
  /** Stored since the last claim began; or the claim in flight may bring it. */
  waits: 'no' | 'in the queue' | 'in a claim'
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
  /** What the claim in flight may bring. */
  private asked: Window | null = null
  private isFencing = false
  /** Senders with anything on its way. */
  private readonly lanes = new Map<PeerNo, Lane>()
  /** Deliveries that are known to wait, and whether anything else may: true at first. */
  private waiting = 0
  private mayWait = true
  /** The claim in flight may bring mail of any sender. */
  private isAskedForAny = false

  private readonly isBirthLeaseOn: boolean

  constructor(window: Window, isBirthLeaseOn: boolean) {
    this.window = window
    this.isBirthLeaseOn = isBirthLeaseOn
  }

  private get free(): Window {
    return {
      count: this.window.count - this.held - this.births - (this.asked?.count ?? 0),
      byteCount: this.window.byteCount - this.heldBytes - this.birthBytes - (this.asked?.byteCount ?? 0),
    }
  }

  resize(count: number): void {
    this.window = { ...this.window, count }
  }

  /** Something may wait for this session. */
  noticeBacklog(): void {
    this.mayWait = true
  }

  /** Counts an envelope on its way to the queue; answers whether it may ask for a birth lease. */
  admitAppend(sender: PeerNo, byteCount: number): boolean {
    const lane = this.laneOf(sender)
    const isBorn = this.mayBeBorn(lane)
    if (!isBorn) lane.plain += 1
    else {
      lane.births += 1
      this.births += 1
      this.birthBytes += byteCount
    }
    return isBorn
  }

  private laneOf(sender: PeerNo): Lane {
    const known = this.lanes.get(sender)
    if (known) return known
    const lane: Lane = { births: 0, plain: 0, waits: 'no' }
    this.lanes.set(sender, lane)
    return lane
  }

  private mayBeBorn(lane: Lane): boolean {
    if (!this.isBirthLeaseOn || this.isFencing || this.isCongested || this.mayWait || this.isAskedForAny) return false
    if (lane.plain > 0 || lane.waits !== 'no') return false
    const { free } = this
    // What waits needs its room before it is claimed: births must not take every place as it falls free.
    return free.count > (this.asked ? 0 : this.needed) && free.byteCount > 0
  }

  /** A claim costs much the same for one delivery as for many: it waits until so much of the window is free. */
  private get needed(): number {
    const many = this.window.count >> 2
    return this.mayWait ? many : Math.min(this.waiting, many)
  }

  /** The envelope's answer came. Without a lease it waits in the queue now. */
  appendAnswered(sender: PeerNo, answer: { hadBirth: boolean; isWaiting: boolean; byteCount: number }): void {
    const lane = this.lanes.get(sender)!
    if (answer.hadBirth) {
      lane.births -= 1
      this.births -= 1
      this.birthBytes -= answer.byteCount
    } else lane.plain -= 1
    if (answer.isWaiting) {
      lane.waits = 'in the queue'
      this.waiting += 1
    }
    this.tidy(sender, lane)
  }

  /** Whether envelopes of this sender are on their way that will be pushed at once. */
  hasBirths(sender: PeerNo): boolean {
    return this.births > 0 && (this.lanes.get(sender)?.births ?? 0) > 0
  }

  /** Whether the claim in flight may bring mail of this sender, older than what is born meanwhile. */
  mayBring(sender: PeerNo): boolean {
    return this.asked !== null && (this.isAskedForAny || this.lanes.get(sender)?.waits === 'in a claim')
  }

  private tidy(sender: PeerNo, { births, plain, waits }: Lane): void {
    if (births === 0 && plain === 0 && waits === 'no') this.lanes.delete(sender)
  }

  /** How much to claim now, if it is the moment; it counts as started then. */
  startClaim(): Window | null {
    if (this.asked || this.isFencing || this.isCongested) return null
    if (!this.mayWait && this.waiting === 0) return null
    const { free, window } = this
    if (free.count < Math.max(1, this.needed) || free.byteCount < window.byteCount >> 2) return null
    // No more than what is known to wait, and a few: the rest of the window is left to births.
    const known = this.mayWait ? free.count : Math.min(free.count, this.waiting + CLAIM_SPARE)
    this.asked = { count: known, byteCount: this.mayWait ? free.byteCount : free.byteCount >> 1 }
    for (const lane of this.lanes.values()) if (lane.waits === 'in the queue') lane.waits = 'in a claim'
    this.isAskedForAny = this.mayWait
    this.waiting = 0 // before the claim, so that what arrives meanwhile counts again
    this.mayWait = false
    return this.asked
  }

  claimAnswered(answer: { mayHaveMore: boolean }): void {
    this.asked = null
    this.isAskedForAny = false
    if (answer.mayHaveMore) this.mayWait = true
    for (const [sender, lane] of this.lanes) {
      if (lane.waits === 'in a claim') lane.waits = 'no' // what may be left of it is anybody's
      this.tidy(sender, lane)
    }
  }

  /** Answers false when a fence is under way already. */
  startFence(): boolean {
    this.mayWait = true
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
