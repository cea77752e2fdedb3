/** Takes deliveries from the queue to their recipient: leases on insert or claims, pushes, settles and fences. */
import {
  type AppendOutcome,
  byPlace,
  type Claimed,
  type CloseCode,
  type Delivery,
  type DeliveryRef,
  type Extension,
  type Reject,
  type Release,
  type Retry,
  type Settle,
} from '@sealpost/protocol'
import type { DeliveryId, Millis } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { ClaimWantOf } from '../effects.ts'
import { deliveryRef, type LiveSession, type PendingAppend, PoolState, refOf } from '../model.ts'
import type { PoolDispatcher } from '../pools/pools.ts'
import { Pace } from '../send/rate.ts'
import { SessionLocations } from '../shards/homes.ts'
import type { Unsettled } from './credit.ts'

/** A recipient that leaves after holding its oldest delivery for this long may have crashed because of it. */
const FAILED_ATTEMPT_AFTER_MS = 10_000
/** The minimum retry pause, so that a recipient that can't handle a delivery does not spin. */
const RETRY_AFTER_MIN_MS = 100
/** The rate beyond which retries are delayed further, because each costs a row update and another push. */
const RETRIES = { perSecond: 100, burst: 2_000 }
const RETRY_AFTER_MAX_MS = 5 * 60_000
/**
 * The number of lease times after which a delivery that was neither settled nor claimed has certainly left the queue.
 */
const FORGET_AFTER_LEASES = 10

/** The maximum extension. A longer lease would look like one from before a database clock jump. */
const EXTEND_MAX_MS = 4 * 60_000

const UNKNOWN_ID = 0

/** `normal`: the client has closed the connection because it has finished. */
export type ConnectionEnd = 'normal' | 'broken'

interface RoutedWant extends ClaimWantOf<'mailbox'> {
  readonly live: LiveSession
}
export interface RoutedRemoteWant extends ClaimWantOf<'remote'> {
  readonly live: LiveSession
}

export class Deliveries {
  readonly locations: SessionLocations
  private readonly context: Context
  private readonly pools: PoolDispatcher

  constructor(context: Context, pools: PoolDispatcher) {
    this.context = context
    this.pools = pools
    this.locations = new SessionLocations(context)
  }

  over(live: LiveSession): void {
    this.pools.sessionEnded(live)
    this.locations.ended(live)
  }

  /** Counts an append to a session, and requests a lease on insert if the session's credit allows one. */
  admit(append: PendingAppend): void {
    const { to, toLive, notBeforeMs } = append
    if (toLive) {
      if (toLive.credit.admitAppend(append.sender, append.byteCount)) append.insertLeaseEpoch = toLive.epoch
    } else if (notBeforeMs === 0 && !(to instanceof PoolState)) append.remoteLeaseEpoch = this.locations.epochOf(to)
  }

  commitStarts(appends: readonly PendingAppend[]): void {
    const { nowMs } = this.context
    for (const append of appends)
      if (append.insertLeaseEpoch !== 0)
        append.insertLeaseFloor = append.toLive!.credit.scannedUpTo(append.from.peer, nowMs)
  }

  stored(append: PendingAppend, outcome: AppendOutcome, enqueuedAtMs: Millis): void {
    const { toLive } = append
    if (outcome.status !== 'stored') this.landed(append, null)
    else {
      this.context.lastId = Math.max(this.context.lastId, outcome.id)
      this.landed(append, outcome.isLeased ? null : outcome.id)
      const { insertLeaseEpoch } = append
      if (outcome.isLeased && toLive?.epoch === insertLeaseEpoch && !toLive.isOver && !toLive.credit.isFenced)
        this.pushInserted(toLive, append, outcome.id, enqueuedAtMs)
      else if (append.notBeforeMs === 0) this.wake(append, outcome)
    }
    if (!toLive) return
    if (toLive.parked.length > 0 && !toLive.credit.hasInsertLeases(append.sender)) this.pushParked(toLive, append)
    this.scheduleClaim(toLive)
  }

  /**
   * Call when a commit's outcome was lost, in which case a delivery may be leased to this session without its
   * knowledge.
   */
  lost(append: PendingAppend): void {
    const { toLive, insertLeaseEpoch } = append
    if (!toLive) return
    this.landed(append, UNKNOWN_ID)
    if (insertLeaseEpoch !== 0) this.fence(toLive)
    else this.scheduleClaim(toLive)
  }

  /** Records an append's outcome. `waitingId`: the delivery waits in the queue under this id. */
  private landed(append: PendingAppend, waitingId: number | null): void {
    const { toLive, from } = append
    if (!toLive) return
    let waitsFrom = waitingId
    if (waitingId !== null && toLive.credit.scannedUpTo(from.peer, this.context.nowMs) === 0) waitsFrom = UNKNOWN_ID
    toLive.credit.appendLanded(append, waitsFrom)
  }

  /**
   * Starts a claim if the session has credit and none is in flight. `mayWait`: an unknown delivery may wait, for
   * example after a hint.
   */
  scheduleClaim(live: LiveSession, { mayWait = false } = {}): void {
    if (mayWait) live.credit.noticeBacklog()
    if (live.peer.live !== live) return
    const asked = live.credit.startClaim(this.context)
    if (!asked) {
      if (live.credit.remoteLeases.readyBlocks.size > 0) this.claimRemote(live)
      return
    }
    this.context.counters.claims += 1
    const { count: limit, byteCount: limitBytes, ...which } = asked
    const want: RoutedWant = { kind: 'mailbox', session: refOf(live), limit, limitBytes, ...which, live }
    this.context.effects.claim(want)
  }

  private claimRemote(live: LiveSession): void {
    const asked = live.credit.startRemoteClaim()
    if (!asked) return
    const { count: limit, byteCount: limitBytes, ids } = asked
    const want: RoutedRemoteWant = { kind: 'remote', session: refOf(live), limit, limitBytes, ids, live }
    this.context.effects.claim(want)
  }

  claimed(want: ClaimWantOf<'mailbox'>, claimed: Claimed): void {
    const { live } = want as RoutedWant
    if (live.isOver) return
    const isCurrent = want.session.epoch === live.epoch && !live.credit.isFenced
    if (claimed.status === 'away') return this.context.meshMoving(live)
    if (claimed.status === 'stale' && isCurrent) return this.context.end(live, 'superseded')
    const deliveries = claimed.status === 'claimed' ? claimed.deliveries : []
    const mayHaveMore = !isCurrent || claimed.status !== 'claimed' || claimed.hasMore
    const isComplete = live.credit.claimAnswered({ mayHaveMore })
    live.credit.fairQueue.served(deliveries)
    const { nowMs, limits } = this.context
    if (isCurrent) live.credit.remoteLeases.scanned(deliveries, { isComplete, nowMs, staleMs: limits.leaseMs })
    if (isCurrent) this.pushFound(live, deliveries)
    // Repeat a want whose row was locked, at the next claim tick.
    this.scheduleClaim(live)
  }

  claimFailed(want: ClaimWantOf<'mailbox'>): void {
    const { live } = want as RoutedWant
    if (live.isOver) return
    live.credit.claimAnswered({ mayHaveMore: true })
    this.fence(live)
  }

  /** Call once a fence has completed. `epoch`: the session's new epoch; null if another shard has the session. */
  fenced(live: LiveSession, epoch: number | null): void {
    if (live.isOver) return
    if (epoch === null) return this.context.end(live, 'superseded')
    live.epoch = epoch
    live.credit.fenceAnswered()
    this.scheduleClaim(live)
  }

  settle(live: LiveSession, ids: readonly DeliveryId[]): void {
    const { counters, effects, nowMs, timed } = this.context
    const {
      mesh: { meshId },
      peer: { peer: recipient },
    } = live
    const first = live.credit.unsettled.get(ids[0]!) // once per frame, because it costs 1.5 µs
    if (first) timed('settle', nowMs - first.pushedAtMs)
    let strays = 0
    for (const id of ids) {
      const unsettled = this.ended(live, id)
      if (!unsettled) {
        strays += 1
        continue
      }
      counters.settled += 1
      const { priority, pool, receiptTo } = unsettled
      if (pool !== undefined) effects.settle({ ...deliveryRef(live, id, unsettled), receiptTo })
      else effects.settle({ meshId, recipient, priority, id, receiptTo })
    }
    if (strays > 0) this.strayed(live, strays)
    this.scheduleClaim(live)
  }

  /** Returns the settled delivery if the session held it. */
  private ended(live: LiveSession, id: DeliveryId): Unsettled | undefined {
    const unsettled = live.credit.settled(id)
    if (unsettled && live.seats.size > 0) this.pools.deliveryEnded(live, id, unsettled.pool)
    return unsettled
  }

  reject(live: LiveSession, items: readonly { id: DeliveryId; reason: string }[]): void {
    const { counters, effects } = this.context
    const rejects: Reject[] = []
    const withReceipt: Settle[] = []
    let strays = 0
    for (const { id, reason } of items) {
      const unsettled = this.ended(live, id)
      if (!unsettled) {
        strays += 1
        continue
      }
      const delivery = deliveryRef(live, id, unsettled)
      rejects.push({ delivery, epoch: epochOf(live, unsettled), reason })
      if (unsettled.receiptTo) withReceipt.push({ ...delivery, receiptTo: unsettled.receiptTo })
    }
    counters.rejected += rejects.length
    if (rejects.length > 0) effects.updateDeliveries({ type: 'reject', rejects, withReceipt })
    this.strayed(live, strays)
    this.scheduleClaim(live)
  }

  extend(live: LiveSession, ids: readonly DeliveryId[], forMs: Millis): void {
    const { nowMs, counters, effects } = this.context
    const extensions: Extension[] = []
    if (this.context.limits.rate && live.extensionBucket.take(nowMs, ids.length) > 0)
      return this.context.end(live, 'rate_exceeded')
    if (forMs === 0) return live.credit.markUntouched(ids)
    const leaseMs = Math.min(forMs, EXTEND_MAX_MS)
    for (const id of new Set(ids)) {
      const unsettled = live.credit.extended(id, nowMs + leaseMs)
      if (!unsettled) continue
      const epoch = epochOf(live, unsettled)
      extensions.push({ delivery: deliveryRef(live, id, unsettled), epoch, forMs: leaseMs })
    }
    counters.extended += extensions.length
    if (extensions.length > 0) effects.updateDeliveries({ type: 'extend', extensions })
  }

  /**
   * Replies to a ping once earlier settles are committed. A closing client waits for this, so that its next session
   * does not receive them again.
   */
  pinged(live: LiveSession, ref: number): void {
    this.context.effects.whenSettled(refOf(live), () => {
      if (live.peer.live === live) this.context.send(live, [{ type: 'pong', ref }])
    })
  }

  /** Call once these settles, whose senders requested receipts, are committed. */
  receiptsCommitted(settles: readonly Settle[]): void {
    for (const { meshId, receiptTo } of settles) {
      const peer = receiptTo ? this.context.meshes.find(meshId)?.byKey.get(receiptTo) : undefined
      if (peer?.live) this.scheduleClaim(peer.live, { mayWait: true })
      else if (peer) this.context.effects.hint({ type: 'wake', meshId, peer: peer.peer })
    }
  }

  retry(live: LiveSession, items: readonly { id: DeliveryId; afterMs: Millis }[]): void {
    const retries: Retry[] = []
    let strays = 0
    for (const { id, afterMs } of items) {
      const unsettled = this.ended(live, id)
      if (!unsettled) {
        strays += 1
        continue
      }
      this.context.counters.retried += 1
      retries.push({
        delivery: deliveryRef(live, id, unsettled),
        epoch: epochOf(live, unsettled),
        afterMs: Math.max(afterMs, RETRY_AFTER_MIN_MS, this.retryPauseMs(live)),
      })
    }
    if (retries.length > 0) this.context.effects.updateDeliveries({ type: 'retry', retries })
    this.strayed(live, strays)
    live.credit.returned()
    this.scheduleClaim(live)
  }

  /** Returns the delay before a retry. The limit applies per user, so that new sessions and devices add no burst. */
  private retryPauseMs({ peer }: LiveSession): Millis {
    if (!this.context.limits.rate) return 0
    peer.share.retries ??= new Pace(RETRIES)
    return Math.min(RETRY_AFTER_MAX_MS, peer.share.retries.take(this.context.nowMs))
  }

  /** Charges the session for settles of deliveries that it doesn't hold. */
  private strayed(live: LiveSession, count: number): void {
    if (count === 0) return
    this.context.counters.settledForeign += count
    if (this.context.limits.rate && live.strayBucket.take(this.context.nowMs, count) > 0)
      this.context.end(live, 'rate_exceeded')
  }

  /**
   * Returns the deliveries that the recipient has not touched, and their attempts don't count. They share the rate of retries, because each costs a row update too: beyond it, the attempts
   * count.
   */
  private returnUntouched(live: LiveSession): void {
    const releases: Release[] = []
    for (const [id, unsettled] of live.credit.takeUntouched()) {
      if (this.retryPauseMs(live) > 0) break
      releases.push({ delivery: deliveryRef(live, id, unsettled), epoch: epochOf(live, unsettled), isUntouched: true })
    }
    if (releases.length > 0) this.context.effects.updateDeliveries({ type: 'release', releases })
  }

  /**
   * Call when the recipient's connection has ended. Adds a failed attempt to its suspect; without a suspect, to the oldest
   * delivery if it was held for long. Other deliveries may never have arrived: if they counted, a network that drops
   * large frames would turn valid mail into dead letters.
   */
  left(live: LiveSession, end: ConnectionEnd, arrivedUntilMs: Millis): void {
    if (end === 'normal') this.returnUntouched(live)
    if (this.failSuspect(live)) return
    const oldest = live.credit.unsettled.entries().next().value
    if (!oldest) return
    const [id, unsettled] = oldest
    const wasLong =
      this.context.nowMs - unsettled.pushedAtMs >= FAILED_ATTEMPT_AFTER_MS && unsettled.pushedAtMs < arrivedUntilMs
    if (wasLong) this.failAttempt(deliveryRef(live, id, unsettled))
  }

  /**
   * Call when the broker ends the session. This must count as a failed attempt too, because a crashed machine sends no
   * close frame; otherwise, its suspect would block all later deliveries forever.
   */
  ending(live: LiveSession, code: CloseCode): void {
    if (code === 'superseded' || code === 'heartbeat_missed') this.failSuspect(live)
  }

  private failSuspect(live: LiveSession): boolean {
    const suspect = live.credit.unsettledSuspect
    if (suspect) this.failAttempt(deliveryRef(live, ...suspect))
    return suspect !== null
  }

  private failAttempt(delivery: DeliveryRef): void {
    this.context.effects.updateDeliveries({ type: 'failAttempt', delivery })
  }

  /** Claims without a hint, as a backstop. Deliveries pushed before `arrivedUntilMs` have certainly arrived. */
  poll(live: LiveSession, arrivedUntilMs: Millis): void {
    const { nowMs, limits } = this.context
    live.credit.lapse(nowMs - limits.leaseMs, nowMs - FORGET_AFTER_LEASES * limits.leaseMs)
    live.credit.clearSuspect(Math.min(nowMs - FAILED_ATTEMPT_AFTER_MS, arrivedUntilMs))
    this.scan(live)
  }

  scan(live: LiveSession): void {
    this.pools.refresh(live)
    this.scheduleClaim(live, { mayWait: true })
  }

  /**
   * Pushes a delivery that was leased on insert, after any claim that may return older mail from its sender. Claimed
   * deliveries likewise wait for inserts. Ids determine the order.
   */
  private pushInserted(live: LiveSession, append: PendingAppend, id: DeliveryId, enqueuedAtMs: Millis): void {
    const { nowMs, counters } = this.context
    counters.leasedOnInsert += 1
    live.credit.leasedOnInsert(id)
    this.context.timed('push', nowMs - append.routedAtMs)
    const { envelopeId, priority, envelope, terms, body } = append
    const sender = append.from.peer.peerKey
    const bytes = body?.bytes ?? null
    const delivery: Delivery = {
      id,
      envelopeId,
      sender,
      priority,
      attempt: 1,
      enqueuedAtMs,
      envelope,
      terms,
      body: bytes,
    }
    if (live.credit.mayBring(append.sender)) return live.park(delivery, nowMs)
    if (live.parked.length > 0) this.pushParked(live, append, id)
    this.context.push(live, delivery)
  }

  pushFound(live: LiveSession, claimed: readonly Delivery[]): void {
    for (const delivery of inOrder(claimed, live.takeParked())) {
      const sender = live.mesh.byKey.get(delivery.sender)
      if (sender && live.credit.hasInsertLeases(sender.peer)) live.park(delivery, this.context.nowMs)
      else this.context.push(live, delivery)
    }
  }

  private pushParked(live: LiveSession, { from, sender }: PendingAppend, before?: DeliveryId): void {
    if (live.credit.mayBring(sender)) return
    for (const delivery of live.takeParkedOf(from.peer.peerKey, before)) this.context.push(live, delivery)
  }

  /**
   * Makes the recipient's session claim, on any shard. If the lease on insert was refused, older mail waits that the
   * session does not know of.
   */
  private wake(
    { meshId, recipient: peer, to, toLive, insertLeaseEpoch, remoteLeaseEpoch }: PendingAppend,
    stored: Stored,
  ): void {
    if (to instanceof PoolState) return this.pools.wake(meshId, peer)
    const live = this.context.meshes.find(meshId)?.byNo.get(peer)?.live
    if (!live && stored.isLeased)
      this.context.effects.hint({ type: 'born', meshId, peer, epoch: remoteLeaseEpoch, id: stored.id })
    else if (!live) this.context.effects.hint({ type: 'wake', meshId, peer })
    else if (live !== toLive || insertLeaseEpoch !== 0) this.scheduleClaim(live, { mayWait: true })
  }

  private fence(live: LiveSession): void {
    if (live.isOver || !live.credit.startFence()) return
    live.takeParked() // their leases are void, so they will be claimed again
    this.context.counters.fences += 1
    this.context.effects.fence(live.socket, refOf(live))
  }
}

type Stored = Extract<AppendOutcome, { status: 'stored' }>

function inOrder(claimed: readonly Delivery[], parked: readonly Delivery[]): readonly Delivery[] {
  if (parked.length === 0) return claimed
  return [...parked, ...claimed].sort(byPlace) // parked ones first: their attempt number counts
}

const epochOf = (live: LiveSession, { pool }: Pick<Unsettled, 'pool'>): number =>
  pool === undefined ? live.epoch : live.openedEpoch
