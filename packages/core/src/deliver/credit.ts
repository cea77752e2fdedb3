/**
 * Manages a session's credit, which decides which deliveries may be pushed to it next. Four paths share one window, and
 * each sender's mail takes one of them at a time, to keep its order (P6):
 *
 * - a *claim* takes deliveries from the queue; at most one is in flight, and the window reserves its limit;
 * - a *lease on insert* pushes an envelope right after its commit, while no other delivery of its sender is on its
 *   way to this recipient, waits in the queue, or may be in the claim in flight;
 * - a *collect* reads deliveries that another shard leased to the session on insert, within the same bounds as a
 *   claim;
 * - a *fence* voids all leases of the session after a reply was lost.
 */

import { ANY_ID, type IdRange, PRIORITY_MAX, RECEIPT_IDS_FROM, type RemoteWant, type Want } from '@sealpost/protocol'
import { type DeliveryId, ID_BLOCK, type Millis, type PeerKey, type PeerNo } from '@sealpost/std'
import type { EngineLimits } from '../limits.ts'
import { WeightedFairQueue } from './outgoing.ts'
import { RemoteLeaseCursor } from './remote-lease-cursor.ts'

export interface Unsettled {
  readonly priority: number
  readonly pushedAtMs: Millis
  readonly byteCount: number
  readonly receiptTo: PeerKey | null
  /**
   * The pool that the delivery belongs to. The delivery counts against the pool's credit; its bytes count against this
   * session's window.
   */
  readonly pool?: PeerNo | undefined
  /** Whether the delivery has reserved room in the window but was not pushed. */
  readonly isParked: boolean
  /** When the lease was last extended; it then runs from here instead of from `pushedAtMs`. */
  heldFromMs?: Millis
  /** Whether its lease has lapsed, in which case it takes no room and may be pushed again. */
  isLapsed: boolean
}

/** The last complete scan of the queue. */
interface Scan {
  readonly tick: number
  /** When the scan ended, every delivery that this shard stored under a lower id was leased to this session or gone. */
  readonly upTo: number
}

const NO_ID: IdRange = { from: Infinity, to: 0 }
const RECEIPT_IDS: IdRange = { from: RECEIPT_IDS_FROM, to: ANY_ID.to }

/**
 * How many more deliveries a claim requests than are known to wait. A claim that returns fewer than requested has
 * emptied the queue.
 */
const CLAIM_SPARE = 8

/**
 * Limits the deliveries in flight to one recipient: their number by its request, their bytes by the broker's memory.
 */
export interface Window {
  readonly count: number
  readonly byteCount: number
}

/** The size of a claim, and the delivery ids that it covers. */
export interface ClaimRequest extends Window, Pick<Want, 'ids' | 'priorityMax' | 'virtualTimes' | 'collected'> {}

/** One sender's deliveries that are on their way to the recipient or wait for it. */
interface SenderLane {
  insertLeases: number
  /** Appends without a lease on insert whose commit has no outcome yet. */
  plain: number
  /** `in the queue`: stored since the last claim began. `in a claim`: the claim in flight may return it. */
  waits: 'no' | 'in the queue' | 'in a claim'
}

/** The size of a collect, and the delivery ids that it covers. */
export interface RemoteClaim extends Window, Pick<RemoteWant, 'ids'> {}

/** An append that `admitAppend` counted. */
export interface LandedAppend {
  readonly sender: PeerNo
  readonly insertLeaseEpoch: number
  readonly byteCount: number
  readonly priority: number
}

export type CreditLimits = Pick<EngineLimits, 'leaseMs' | 'isInsertLeaseOn'>

export class Credit {
  readonly remoteLeases = new RemoteLeaseCursor()
  /** Pushed and unsettled deliveries, oldest first. */
  readonly unsettled = new Map<DeliveryId, Unsettled>()
  isCongested = false
  /**
   * A pushed delivery that may have crashed the recipient before (`ALONE_AFTER_ATTEMPTS`). While it is held, only
   * receipts are pushed: they contain no message that could crash the recipient, and commands wait for them.
   */
  suspect: DeliveryId | null = null
  priorityMax = PRIORITY_MAX
  readonly fairQueue = new WeightedFairQueue()
  private window: Window
  /** The number of unsettled deliveries whose lease may be valid. */
  private held = 0
  private heldBytes = 0
  private insertLeases = 0
  private insertLeaseBytes = 0
  private asked: Window | null = null
  /** The scan that the claim in flight completes if it empties the queue. */
  private scanning: Scan | null = null
  private scanned: Scan | null = null
  /** Whether a fence is in flight. */
  isFenced = false
  /** Senders with deliveries on their way. */
  private readonly lanes = new Map<PeerNo, SenderLane>()
  /** The number of deliveries known to wait. Others may wait too if `mayWait` is true, as it is at first. */
  private waiting = 0
  private waitingIds: IdRange = NO_ID
  private mayWait = true
  /** Whether receipts may wait that were not claimed beside a suspect. */
  private mayReceiptsWait = true
  /** Whether the claim in flight may return mail from any sender. */
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

  /** Whether the byte window has room. */
  get hasBytesFree(): boolean {
    return this.window.byteCount > this.heldBytes + this.insertLeaseBytes
  }

  resize(count: number): void {
    this.window = { ...this.window, count }
  }

  noticeBacklog(): void {
    this.mayWait = true
    this.mayReceiptsWait = true
  }

  /** Counts an append. Returns whether the envelope may request a lease on insert. */
  admitAppend(sender: PeerNo, byteCount: number): boolean {
    const lane = this.laneOf(sender)
    // If less urgent mail must wait, a lease on insert would need a priority check, so all mail is claimed.
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
    // Waiting deliveries need room too, so leases on insert must not take all of it.
    const free = this.window.count - this.held - this.insertLeases
    const freeBytes = this.window.byteCount - this.heldBytes - this.insertLeaseBytes
    const { asked } = this
    if (asked) return free > asked.count && freeBytes > asked.byteCount
    return free > Math.min(this.waiting, this.window.count >> 2) && freeBytes > 0
  }

  /** The room that must be free before a claim, which costs much the same for one delivery as for many. */
  private get needed(): number {
    const many = this.window.count >> 2
    return this.mayWait ? many : Math.min(this.waiting, many)
  }

  /**
   * Handles an append's outcome. `waitsFrom` is the id of a delivery that waits, or 0 if older mail from the sender may
   * wait too.
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

  /** Returns whether appends from this sender with a lease on insert have no outcome yet. */
  hasInsertLeases(sender: PeerNo): boolean {
    return this.insertLeases > 0 && (this.lanes.get(sender)?.insertLeases ?? 0) > 0
  }

  /** Returns whether the claim in flight may return older mail from this sender than a lease on insert would push. */
  mayBring(sender: PeerNo): boolean {
    if (this.asked === null) return false
    return this.isAskedForAny || this.lanes.get(sender)?.waits === 'in a claim'
  }

  /**
   * Returns an id below which no mail from the sender waits unclaimed (see `PeerState.knownSinceTick`); 0 if unknown.
   * It is forgotten well before the oldest lease lapses, because it is invalid afterwards.
   */
  scannedUpTo(sender: { knownSinceTick: number }, nowMs: Millis): number {
    return this.scanned && sender.knownSinceTick < this.scanned.tick && this.areLeasesFresh(nowMs)
      ? this.scanned.upTo
      : 0
  }

  /**
   * Call when a delivery was leased on insert. While nothing waits, no earlier delivery of this shard can be unclaimed,
   * so the next check begins after this id.
   */
  leasedOnInsert(id: DeliveryId): void {
    const isAllOurs = !this.asked && !this.mayWait && this.waiting === 0
    if (this.scanned && isAllOurs) this.scanned = { tick: this.scanned.tick, upTo: id + 1 }
  }

  private areLeasesFresh(nowMs: Millis): boolean {
    const oldest = this.unsettled.values().next().value
    return oldest === undefined || nowMs - oldest.pushedAtMs < this.limits.leaseMs / 2
  }

  /** Call when deliveries were released, so that they wait again. */
  returned(): void {
    this.scanned = null
    this.noticeBacklog()
  }

  /** Starts a claim, if the state allows one. Returns its size, or null. */
  startClaim(at: { readonly lastId: number; readonly nowMs: Millis; nextTick(): number }): ClaimRequest | null {
    if (this.asked || this.isFenced || this.isCongested) return null
    if (this.suspect !== null) return this.startReceiptClaim()
    if (!this.mayWait && this.waiting === 0) return null
    const { freeCount, freeBytes, window } = this
    if (freeCount < Math.max(1, this.needed) || freeBytes < window.byteCount >> 2) return null
    // Request little more than is known to wait, to leave room for leases on insert.
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
    this.waiting = 0 // Reset before the claim, so that later arrivals are counted.
    this.waitingIds = NO_ID
    this.mayWait = false
    return asked
  }

  private startReceiptClaim(): ClaimRequest | null {
    const { freeCount, freeBytes, priorityMax, remoteLeases, fairQueue } = this
    if (!this.mayReceiptsWait || freeCount < 1 || freeBytes < 1) return null
    this.mayReceiptsWait = false
    const room = { count: freeCount, byteCount: freeBytes }
    this.asked = room
    this.scanning = null
    return { ...room, ids: RECEIPT_IDS, priorityMax, virtualTimes: fairQueue.now, collected: remoteLeases.lastIds }
  }

  /** Starts a collect if no older mail waits in the queue. Returns its size, or null. */
  startRemoteClaim(): RemoteClaim | null {
    if (this.remoteLeases.readyBlocks.size === 0 || this.asked || this.isFenced || this.isCongested) return null
    if (this.suspect !== null || this.mayWait || this.waiting > 0 || this.priorityMax !== PRIORITY_MAX) return null
    const { freeCount, freeBytes, window } = this
    if (freeCount < Math.max(1, window.count >> 2) || freeBytes < window.byteCount >> 2) return null
    // Leave half of the free room to leases on insert.
    const count = Math.max(1, freeCount >> 1)
    const byteCount = freeBytes >> 1
    this.asked = { count, byteCount }
    this.scanning = null
    return { count, byteCount, ids: this.remoteLeases.takeReady()! }
  }

  /**
   * Returns whether all waiting ids are in one block of this shard. Between two blocks, ids of other shards may be
   * newer than mail that this shard has not seen, so claiming the known range could reverse the order.
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

  /** Handles a claim's reply. Returns whether the claim has emptied the queue. */
  claimAnswered(answer: { mayHaveMore: boolean }): boolean {
    const isComplete = this.scanning !== null && !answer.mayHaveMore
    this.asked = null
    this.isAskedForAny = false
    if (answer.mayHaveMore) this.noticeBacklog()
    else this.scanned = this.scanning ?? this.scanned
    for (const [sender, lane] of this.lanes) {
      if (lane.waits === 'in a claim') lane.waits = 'no' // deliveries that remain may belong to any sender
      if (lane.insertLeases === 0 && lane.plain === 0 && lane.waits === 'no') this.lanes.delete(sender)
    }
    return isComplete
  }

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
   * Returns whether the session still holds a delivery that it claimed again, because a fence or a clock jump voided
   * its lease. After half a lease, the session may have lost it.
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
    if (this.unsettled.has(id)) this.settled(id) // count a delivery that is pushed again only once
    this.unsettled.set(id, unsettled)
    if (unsettled.pool === undefined) this.held += 1
    this.heldBytes += unsettled.byteCount
  }

  /** Returns the delivery whose lease was extended; undefined if this session does not hold it. */
  extended(id: DeliveryId, untilMs: Millis): Unsettled | undefined {
    const unsettled = this.unsettled.get(id)
    if (!unsettled || unsettled.isLapsed) return undefined
    unsettled.heldFromMs = untilMs - this.limits.leaseMs
    return unsettled
  }

  /** Marks deliveries as not being processed, whatever the recipient has extended before. */
  markUntouched(ids: readonly DeliveryId[]): void {
    for (const id of ids) delete this.unsettled.get(id)?.heldFromMs
  }

  /** Removes and returns the deliveries that the recipient has neither ended nor extended, oldest first. */
  takeUntouched(): [DeliveryId, Unsettled][] {
    const untouched = [...this.unsettled].filter(
      ([, { isLapsed, heldFromMs }]) => !isLapsed && heldFromMs === undefined,
    )
    for (const [id] of untouched) this.settled(id)
    return untouched
  }

  /** Returns the settled delivery; undefined if this session does not hold it. */
  settled(id: DeliveryId): Unsettled | undefined {
    const unsettled = this.unsettled.get(id)
    if (!unsettled) return undefined
    this.unsettled.delete(id)
    if (id === this.suspect) this.suspect = null
    if (!unsettled.isLapsed) this.release(unsettled)
    return unsettled
  }

  /** Clears a suspect that was pushed before `pushedBeforeMs`, because it did not crash its recipient immediately. */
  clearSuspect(pushedBeforeMs: Millis): void {
    const pushedAtMs = this.unsettledSuspect?.[1].pushedAtMs ?? -Infinity
    if (pushedAtMs < pushedBeforeMs) this.suspect = null
  }

  get unsettledSuspect(): [DeliveryId, Unsettled] | null {
    const unsettled = this.suspect === null ? undefined : this.unsettled.get(this.suspect)
    return unsettled ? [this.suspect!, unsettled] : null
  }

  /**
   * Frees the room of deliveries pushed before `pushedBeforeMs`, so that a recipient that settles nothing is still
   * pushed to. Forgets those pushed before `forgetBeforeMs`.
   */
  lapse(pushedBeforeMs: Millis, forgetBeforeMs: Millis): void {
    for (const [id, unsettled] of this.unsettled) {
      if (unsettled.pushedAtMs >= pushedBeforeMs) return
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
