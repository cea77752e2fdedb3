/**
 * What a recipient's session may be given next. Four ways lead to it, they share one window, and each sender's mail
 * takes one of them at a time, so that its order stays (P6):
 *
 * - a *claim* takes what waits in the queue; one is in flight at most, and its limit is taken out of the window;
 * - a *birth lease* lets an envelope through right after its commit, while nothing else of its sender is on its way to
 *   this recipient, waits for it, or may be in a claim that is in flight;
 * - a *collect* takes what another shard leased to it at birth, under the same bounds as a claim;
 * - a *fence* voids everything that was leased to the session, after an answer was lost.
 */

import { ANY_ID, type IdRange, PRIORITY_MAX, type RemoteWant, type Want } from '@sealpost/protocol'
import { type DeliveryId, ID_BLOCK, type Millis, type PeerKey, type PeerNo } from '@sealpost/std'
import type { EngineLimits } from '../limits.ts'
import { WeightedFairQueue } from './outgoing.ts'
import { RemoteLeaseCursor } from './remote-lease-cursor.ts'

export interface Unsettled {
  readonly priority: number
  readonly pushedAtMs: Millis
  readonly byteCount: number
  /** Its sender, when that wants to hear of its end. */
  readonly receiptTo: PeerKey | null
  /** Of this pool; it counts there, and its bytes here. */
  readonly pool?: PeerNo | undefined
  /** It has its place in the window, and is pushed later. */
  readonly isParked: boolean
  /** As if it was pushed then: its lease was extended. */
  heldFromMs?: Millis
  /** Its lease is over: it fills no room in the window, and may be pushed again. It can still be settled. */
  isLapsed: boolean
}

/** The last look into the whole queue that found all there was. */
interface Scan {
  readonly tick: number
  /** Whatever this shard stored under lower ids was leased to this session then, or gone. */
  readonly upTo: number
}

const NO_ID: IdRange = { from: Infinity, to: 0 }

/** A claim that picks less than it asked for has emptied the queue; so it asks for a few more than are known. */
const CLAIM_SPARE = 8

/** What may be on its way to one recipient: deliveries, as it asked for, and bytes, as the broker's memory allows. */
export interface Window {
  readonly count: number
  readonly byteCount: number
}

/** A claim to be made: how much, and of which delivery ids. */
export interface ClaimRequest extends Window, Pick<Want, 'ids' | 'priorityMax' | 'virtualTimes' | 'collected'> {}

/** What one sender has on its way to the recipient, or waiting for it. */
interface SenderLane {
  insertLeases: number
  /** Without a birth lease, and not answered yet. */
  plain: number
  /** Stored since the last claim began; or the claim in flight may bring it. */
  waits: 'no' | 'in the queue' | 'in a claim'
}

/** The same of what was leased elsewhere. */
export interface RemoteClaim extends Window, Pick<RemoteWant, 'ids'> {}

/** An append that `admitAppend` counted. */
export interface LandedAppend {
  readonly sender: PeerNo
  /** 0: it had no lease on insert. */
  readonly insertLeaseEpoch: number
  readonly byteCount: number
  readonly priority: number
}

export type CreditLimits = Pick<EngineLimits, 'leaseMs' | 'isInsertLeaseOn'>

export class Credit {
  readonly remoteLeases = new RemoteLeaseCursor()
  /** Pushed and not settled, oldest first. */
  readonly unsettled = new Map<DeliveryId, Unsettled>()
  isCongested = false
  /** May have ended the recipient's process before (`ALONE_AFTER_ATTEMPTS`): nothing else is given out beside it. */
  suspect: DeliveryId | null = null
  /** Nothing less urgent is given to it. */
  priorityMax = PRIORITY_MAX
  readonly fairQueue = new WeightedFairQueue()
  private window: Window
  /** Of the unsettled, those whose lease may still hold. */
  private held = 0
  private heldBytes = 0
  private insertLeases = 0
  private insertLeaseBytes = 0
  /** What the claim in flight may bring. */
  private asked: Window | null = null
  /** What the claim in flight will have seen, if it picks less than it may and brings all of that. */
  private scanning: Scan | null = null
  private scanned: Scan | null = null
  /** A fence is in flight: what was leased before is void. */
  isFenced = false
  /** Senders with anything on its way. */
  private readonly lanes = new Map<PeerNo, SenderLane>()
  /** Deliveries that are known to wait, and whether anything else may: true at first. */
  private waiting = 0
  /** Their ids lie in it. */
  private waitingIds: IdRange = NO_ID
  private mayWait = true
  /** The claim in flight may bring mail of any sender. */
  private isAskedForAny = false

  private readonly limits: CreditLimits

  constructor(window: Window, limits: CreditLimits) {
    this.window = window
    this.limits = limits
  }

  private get freeCount(): number {
    return this.window.count - this.held - this.insertLeases - (this.asked?.count ?? 0)
  }
  private get freeBytes(): number {
    return this.window.byteCount - this.heldBytes - this.insertLeaseBytes - (this.asked?.byteCount ?? 0)
  }

  /** A claim in flight is passed by: at most it asks for all there is. */
  get hasBytesFree(): boolean {
    return this.window.byteCount > this.heldBytes + this.insertLeaseBytes
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
    // While some mail must wait, a birth would have to be checked against it: all goes by claims.
    const isBorn = this.priorityMax === PRIORITY_MAX && this.mayLeaseOnInsert(lane)
    if (!isBorn) lane.plain += 1
    else {
      lane.insertLeases += 1
      this.insertLeases += 1
      this.insertLeaseBytes += byteCount
    }
    return isBorn
  }

  private laneOf(sender: PeerNo): SenderLane {
    const known = this.lanes.get(sender)
    if (known) return known
    const lane: SenderLane = { insertLeases: 0, plain: 0, waits: 'no' }
    this.lanes.set(sender, lane)
    return lane
  }

  private mayLeaseOnInsert(lane: SenderLane): boolean {
    if (!this.limits.isInsertLeaseOn || this.isFenced || this.isCongested || this.mayWait || this.isAskedForAny)
      return false
    if (this.suspect !== null) return false
    if (lane.plain > 0 || lane.waits !== 'no') return false
    // What waits needs its room before it is claimed: leases on insert must not take every place as it falls free.
    const free = this.window.count - this.held - this.insertLeases
    const freeBytes = this.window.byteCount - this.heldBytes - this.insertLeaseBytes
    const { asked } = this
    if (asked) return free > asked.count && freeBytes > asked.byteCount
    return free > Math.min(this.waiting, this.window.count >> 2) && freeBytes > 0
  }

  /** A claim costs much the same for one delivery as for many: it waits until so much of the window is free. */
  private get needed(): number {
    const many = this.window.count >> 2
    return this.mayWait ? many : Math.min(this.waiting, many)
  }

  /**
   * The envelope's answer came. Without a lease it waits in the queue now, and `waitsFrom` is its id; 0 when older mail of
   * its sender may wait too.
   */
  appendLanded({ sender, insertLeaseEpoch, byteCount, priority }: LandedAppend, waitsFrom: number | null): void {
    const lane = this.lanes.get(sender)!
    if (insertLeaseEpoch !== 0) {
      lane.insertLeases -= 1
      this.insertLeases -= 1
      this.insertLeaseBytes -= byteCount
    } else lane.plain -= 1
    if (waitsFrom !== null) {
      lane.waits = 'in the queue'
      if (priority <= this.priorityMax) this.waiting += 1
      this.waitingIds = {
        from: Math.min(this.waitingIds.from, waitsFrom),
        to: Math.max(this.waitingIds.to, waitsFrom),
      }
    }
    if (lane.insertLeases === 0 && lane.plain === 0 && lane.waits === 'no') this.lanes.delete(sender)
  }

  /** Whether envelopes of this sender are on their way that will be pushed at once. */
  hasInsertLeases(sender: PeerNo): boolean {
    return this.insertLeases > 0 && (this.lanes.get(sender)?.insertLeases ?? 0) > 0
  }

  /** Whether the claim in flight may bring mail of this sender, older than what is born meanwhile. */
  mayBring(sender: PeerNo): boolean {
    if (this.asked === null) return false
    return this.isAskedForAny || this.lanes.get(sender)?.waits === 'in a claim'
  }

  /**
   * Below this id nothing of the sender (see `Peer.knownSinceTick`) waits unclaimed; 0: unknown. It holds for what no lease
   * has lapsed of, so it is given up well before the oldest of what was pushed comes to that.
   */
  scannedUpTo(sender: { knownSinceTick: number }, nowMs: Millis): number {
    return this.scanned && sender.knownSinceTick < this.scanned.tick && this.areLeasesFresh(nowMs)
      ? this.scanned.upTo
      : 0
  }

  /**
   * A birth was stored under this id. While nothing waits, all that this shard stored before it was leased to this session
   * as well, or is gone, so the look before the next birth begins behind it.
   */
  leasedOnInsert(id: DeliveryId): void {
    const isAllOurs = !this.asked && !this.mayWait && this.waiting === 0
    if (this.scanned && isAllOurs) this.scanned = { tick: this.scanned.tick, upTo: id + 1 }
  }

  private areLeasesFresh(nowMs: Millis): boolean {
    const oldest = this.unsettled.values().next().value
    return oldest === undefined || nowMs - oldest.pushedAtMs < this.limits.leaseMs / 2
  }

  /** Deliveries were given back: they wait again. */
  returned(): void {
    this.scanned = null
    this.mayWait = true
  }

  /** How much to claim now, if it is the moment; it counts as started then. */
  startClaim(at: { readonly lastId: number; readonly nowMs: Millis; nextTick(): number }): ClaimRequest | null {
    if (this.asked || this.isFenced || this.isCongested || this.suspect !== null) return null
    if (!this.mayWait && this.waiting === 0) return null
    const { freeCount, freeBytes, window } = this
    if (freeCount < Math.max(1, this.needed) || freeBytes < window.byteCount >> 2) return null
    // No more than what is known to wait, and a few: the rest of the window is left to births.
    const known = this.mayWait ? freeCount : Math.min(freeCount, this.waiting + CLAIM_SPARE)
    const byteCount = this.mayWait ? freeBytes : freeBytes >> 1
    const ids = this.areAllKnown(at.nowMs) ? this.waitingIds : ANY_ID
    const { remoteLeases, priorityMax } = this
    const virtualTimes = this.fairQueue.now
    const asked = { count: known, byteCount, ids, priorityMax, virtualTimes, collected: remoteLeases.lastIds }
    this.asked = asked
    this.isAskedForAny = ids === ANY_ID
    if (this.isAskedForAny) remoteLeases.scanBegins()
    this.scanning =
      this.isAskedForAny && this.priorityMax === PRIORITY_MAX ? { tick: at.nextTick(), upTo: at.lastId } : null
    for (const lane of this.lanes.values()) if (lane.waits === 'in the queue') lane.waits = 'in a claim'
    this.waiting = 0 // before the claim, so that what arrives meanwhile counts again
    this.waitingIds = NO_ID
    this.mayWait = false
    return asked
  }

  /** How much to collect now, of what nothing that waits comes before; it counts as started then. */
  startRemoteClaim(): RemoteClaim | null {
    if (this.remoteLeases.readyBlocks.size === 0 || this.asked || this.isFenced || this.isCongested) return null
    if (this.suspect !== null || this.mayWait || this.waiting > 0 || this.priorityMax !== PRIORITY_MAX) return null
    const { freeCount, freeBytes, window } = this
    if (freeCount < Math.max(1, window.count >> 2) || freeBytes < window.byteCount >> 2) return null
    // Half of what is free is left to births.
    const count = Math.max(1, freeCount >> 1)
    const byteCount = freeBytes >> 1
    this.asked = { count, byteCount }
    this.scanning = null
    return { count, byteCount, ids: this.remoteLeases.takeReady()! }
  }

  /**
   * Ids that other shards gave may lie between two blocks of ours, and be newer than others that were never seen: to claim
   * only those would turn the order round.
   */
  private areAllKnown(nowMs: Millis): boolean {
    const { from, to } = this.waitingIds
    return (
      !this.mayWait &&
      from > 0 &&
      Math.floor(from / ID_BLOCK) === Math.floor(to / ID_BLOCK) &&
      this.areLeasesFresh(nowMs)
    )
  }

  /** Returns whether it looked at everything and found all there was. */
  claimAnswered(answer: { mayHaveMore: boolean }): boolean {
    const isComplete = this.scanning !== null && !answer.mayHaveMore
    this.asked = null
    this.isAskedForAny = false
    if (answer.mayHaveMore) this.mayWait = true
    else this.scanned = this.scanning ?? this.scanned
    for (const [sender, lane] of this.lanes) {
      if (lane.waits === 'in a claim') lane.waits = 'no' // what may be left of it is anybody's
      if (lane.insertLeases === 0 && lane.plain === 0 && lane.waits === 'no') this.lanes.delete(sender)
    }
    return isComplete
  }

  /** Returns false when a fence is under way already. */
  startFence(): boolean {
    this.returned()
    this.remoteLeases.reset()
    if (this.isFenced) return false
    this.isFenced = true
    return true
  }

  fenceAnswered(): void {
    this.isFenced = false
  }

  /**
   * The session was pushed it lately and holds it still: its lease was voided by a fence, or by a jump of the database's
   * clock, and given to it again. Later than that it may be the session that lost it.
   */
  isInHand(id: DeliveryId, nowMs: Millis): boolean {
    const unsettled = this.unsettled.get(id)
    return (
      unsettled !== undefined &&
      !unsettled.isParked &&
      !unsettled.isLapsed &&
      nowMs - unsettled.pushedAtMs < this.limits.leaseMs / 2
    )
  }

  pushed(id: DeliveryId, unsettled: Unsettled): void {
    if (this.unsettled.has(id)) this.settled(id) // pushed again: it counts once
    this.unsettled.set(id, unsettled)
    if (unsettled.pool === undefined) this.held += 1
    this.heldBytes += unsettled.byteCount
  }

  /** Returns the delivery whose lease was extended, or undefined when this session holds no such delivery. */
  extended(id: DeliveryId, untilMs: Millis): Unsettled | undefined {
    const unsettled = this.unsettled.get(id)
    if (!unsettled || unsettled.isLapsed) return undefined
    unsettled.heldFromMs = untilMs - this.limits.leaseMs
    return unsettled
  }

  /** Returns what was settled, or undefined when this session holds no such delivery. */
  settled(id: DeliveryId): Unsettled | undefined {
    const unsettled = this.unsettled.get(id)
    if (!unsettled) return undefined
    this.unsettled.delete(id)
    if (id === this.suspect) this.suspect = null
    if (!unsettled.isLapsed) this.release(unsettled)
    return unsettled
  }

  /** A suspect that reached its recipient before that does not end it at once: others may be given out beside it again. */
  clearSuspect(pushedBeforeMs: Millis): void {
    const pushedAtMs = this.unsettledSuspect?.[1].pushedAtMs ?? -Infinity
    if (pushedAtMs < pushedBeforeMs) this.suspect = null
  }

  get unsettledSuspect(): [DeliveryId, Unsettled] | null {
    const unsettled = this.suspect === null ? undefined : this.unsettled.get(this.suspect)
    return unsettled ? [this.suspect!, unsettled] : null
  }

  /**
   * Frees the room of what was pushed before `pushedBeforeMs`, a lease ago: without that a recipient that settled nothing
   * of a full window would never be pushed anything again. What is very old is forgotten.
   */
  lapse(pushedBeforeMs: Millis, forgetBeforeMs: Millis): void {
    for (const [id, unsettled] of this.unsettled) {
      if (unsettled.pushedAtMs >= pushedBeforeMs) return // the oldest come first
      if (unsettled.heldFromMs !== undefined && unsettled.heldFromMs >= pushedBeforeMs) continue
      if (!unsettled.isLapsed) this.release(unsettled)
      unsettled.isLapsed = true
      if (unsettled.pushedAtMs < forgetBeforeMs) this.unsettled.delete(id)
    }
  }

  private release({ byteCount, pool }: Unsettled): void {
    if (pool === undefined) this.held -= 1
    this.heldBytes -= byteCount
  }
}
