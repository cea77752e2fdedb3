/** The way of a delivery to its recipient: birth lease or claim, push, settle; and the fence after a lost answer. */
import {
  type AppendOutcome,
  byPlace,
  type Claimed,
  type CloseCode,
  type Delivery,
  type DeliveryRef,
  type Extension,
  type Reject,
  type Retry,
  type Settle,
} from '@sealpost/protocol'
import type { DeliveryId, Millis } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { ClaimWantOf } from '../effects.ts'
import { Pool } from '../pools/pool-table.ts'
import type { Pools } from '../pools/pools.ts'
import { Pace } from '../send/rate.ts'
import type { InsertLease, Recipient, RoutedAppend } from '../send/routed-append.ts'
import type { LiveSession, SendRequest } from '../session/session.ts'
import { SessionLocations } from '../shards/session-locations.ts'
import type { Unsettled } from './credit.ts'
import { deliveryRef, epochOf, refOf, settleOf } from './delivery-refs.ts'
import { pushTo } from './pushing.ts'

/** A recipient that leaves while its oldest delivery was with it for longer than this may have been ended by it. */
const FAILED_ATTEMPT_AFTER_MS = 10_000
/** A recipient that gives back what it can't take must not spin. */
const RETRY_AFTER_MIN_MS = 100
/** Each retry costs an update of a row and another push, so past this rate they come back later. */
const RETRIES = { perSecond: 100, burst: 2_000 }
const RETRY_AFTER_MAX_MS = 5 * 60_000
/** A delivery that was neither settled nor claimed again for so long left the queue another way. */
const FORGET_AFTER_LEASES = 10

/** A lease further ahead would count as given before the database's clock jumped. */
const EXTEND_MAX_MS = 4 * 60_000

const NO_INSERT_LEASE: InsertLease = { insertLeaseEpoch: 0, remoteLeaseEpoch: 0 }
/** Before every delivery's. */
const UNKNOWN_ID = 0

/** A want that remembers its session, so that its answer needs no lookup. */
interface RoutedWant extends ClaimWantOf<'mailbox'> {
  readonly live: LiveSession
}
export interface RoutedRemoteWant extends ClaimWantOf<'remote'> {
  readonly live: LiveSession
}

export class Deliveries {
  readonly locations: SessionLocations
  private readonly context: Context
  private readonly pools: Pools

  constructor(context: Context, pools: Pools) {
    this.context = context
    this.pools = pools
    this.locations = new SessionLocations(context)
  }

  /** The session is over. */
  over(live: LiveSession): void {
    this.pools.sessionEnded(live)
    this.locations.ended(live)
  }

  /** Counts an envelope on its way to a session that is here, and answers under which epoch it may be leased at birth. */
  admit(recipient: Recipient, from: LiveSession, arrival: SendRequest): InsertLease {
    const { item, terms, body } = arrival
    const to = recipient.live
    if ((terms && terms.notBeforeMs > 0) || recipient instanceof Pool) return NO_INSERT_LEASE
    if (!to) return { ...NO_INSERT_LEASE, remoteLeaseEpoch: this.locations.epochOf(recipient) }
    const byteCount = item.envelope.length + (body?.shared.bytes.length ?? 0)
    return to.credit.admitAppend(from.peer.peer, byteCount)
      ? { insertLeaseEpoch: to.epoch, remoteLeaseEpoch: 0 }
      : NO_INSERT_LEASE
  }

  /** An append was answered: push what was born leased, and see to what waits. */
  stored(append: RoutedAppend, outcome: AppendOutcome, enqueuedAtMs: Millis): void {
    const { toLive, insertLeaseEpoch } = append
    const isStored = outcome.status === 'stored'
    if (isStored) this.context.lastId = Math.max(this.context.lastId, outcome.id)
    this.answered(append, isStored && !outcome.isLeased ? outcome.id : null)
    if (isStored && outcome.isLeased && toLive && this.mayPush(toLive, insertLeaseEpoch)) {
      this.context.counters.leasedOnInsert += 1
      toLive.credit.leasedOnInsert(outcome.id)
      this.context.timed('push', this.context.nowMs - append.routedAtMs)
      this.pushInserted(toLive, append, append.firstDelivery(outcome.id, enqueuedAtMs))
    } else if (isStored && append.notBeforeMs === 0) this.wake(append, outcome)
    if (!toLive) return
    if (!toLive.credit.hasInsertLeases(append.sender)) this.pushParked(toLive, append)
    this.claimSoon(toLive)
  }

  /** A commit's answer was lost: a delivery may lie leased to this session that it was never told of. */
  lost(append: RoutedAppend): void {
    const { toLive, insertLeaseEpoch } = append
    if (!toLive) return
    this.answered(append, UNKNOWN_ID)
    if (insertLeaseEpoch !== 0) this.fence(toLive)
    else this.claimSoon(toLive)
  }

  /** `waitingId`: the delivery waits in the queue now. */
  private answered(
    { toLive, from, insertLeaseEpoch, byteCount, priority }: RoutedAppend,
    waitingId: number | null,
  ): void {
    if (!toLive) return
    const isSeen = toLive.credit.scannedUpTo(from, this.context.nowMs) > 0
    const waitsFrom = waitingId === null || isSeen ? waitingId : UNKNOWN_ID
    toLive.credit.appendAnswered(from.peer.peer, { hadBirth: insertLeaseEpoch !== 0, waitsFrom, byteCount, priority })
  }

  /** Claims for the session if it is the moment. */
  claimSoon(live: LiveSession): void {
    if (!this.isLive(live)) return
    const { nowMs, lastId } = this.context
    const asked = live.credit.startClaim({ nowMs, lastId, moment: this.context.nextTick() })
    if (!asked) return this.claimRemote(live)
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
    if (!this.isLive(live)) return
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
    // A locked row is asked for again by the next drain tick, which paces it.
    this.claimSoon(live)
  }

  claimFailed(want: ClaimWantOf<'mailbox'>): void {
    const { live } = want as RoutedWant
    if (!this.isLive(live)) return
    live.credit.claimAnswered({ mayHaveMore: true })
    this.fence(live)
  }

  /** `epoch` is the session's new one; `null`: it is served elsewhere now. */
  fenced(live: LiveSession, epoch: number | null): void {
    if (!this.isLive(live)) return
    if (epoch === null) return this.context.end(live, 'superseded')
    live.epoch = epoch
    live.credit.fenceAnswered()
    this.claimSoon(live)
  }

  settle(live: LiveSession, ids: readonly DeliveryId[]): void {
    const { counters, effects, nowMs, timed } = this.context
    const first = live.credit.unsettled.get(ids[0]!) // one of a frame: timing costs 1.5 µs
    if (first) timed('settle', nowMs - first.pushedAtMs)
    let strays = 0
    for (const id of ids) {
      const unsettled = this.ended(live, id)
      if (!unsettled) {
        strays += 1
        continue
      }
      counters.settled += 1
      effects.settle(settleOf(live, id, unsettled))
    }
    this.strayed(live, strays)
    this.claimSoon(live)
  }

  /** What it held, if it did. */
  private ended(live: LiveSession, id: DeliveryId): Unsettled | undefined {
    const unsettled = live.credit.settled(id)
    if (unsettled && live.seats.size > 0) this.pools.deliveryEnded(live, id, unsettled.pool)
    return unsettled
  }

  /** The recipient will not take these, for good. */
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
    this.claimSoon(live)
  }

  /** The recipient is still at work on these. */
  extend(live: LiveSession, ids: readonly DeliveryId[], forMs: Millis): void {
    const { nowMs, counters, effects } = this.context
    const extensions: Extension[] = []
    if (this.context.rates && live.extensionBucket.take(nowMs, ids.length) > 0)
      return this.context.end(live, 'rate_exceeded')
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

  /** A client that closes waits for the pong, so that its next session, at any broker, is not given again what it settled. */
  pinged(live: LiveSession, ref: number): void {
    this.context.effects.whenSettled(refOf(live), () => {
      if (this.isLive(live)) this.context.send(live, [{ type: 'pong', ref }])
    })
  }

  /** What was done with these is committed, and their senders have receipts waiting. */
  receiptsCommitted(settles: readonly Settle[]): void {
    for (const { meshId, receiptTo } of settles) {
      const peer = receiptTo ? this.context.meshes.find(meshId)?.byKey.get(receiptTo) : undefined
      if (peer?.live) this.notice(peer.live)
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
    this.claimSoon(live)
  }

  /** Of a user, so that a new session or another device gives no new burst. */
  private retryPauseMs({ peer }: LiveSession): Millis {
    if (!this.context.rates) return 0
    peer.share.retries ??= new Pace(RETRIES)
    return Math.min(RETRY_AFTER_MAX_MS, peer.share.retries.take(this.context.nowMs))
  }

  /** The session named so many deliveries that it does not hold. */
  private strayed(live: LiveSession, count: number): void {
    if (count === 0) return
    this.context.counters.settledForeign += count
    if (this.context.rates && live.strayBucket.take(this.context.nowMs, count) > 0)
      this.context.end(live, 'rate_exceeded')
  }

  /**
   * The recipient's connection broke off: its suspect gets a strike; without one, the oldest delivery it had for long. A
   * delivery that is no suspect and may never have arrived gets none: a network that swallows large frames would otherwise
   * turn good mail into dead letters.
   */
  left(live: LiveSession, arrivedUntilMs: Millis): void {
    if (this.failSuspect(live)) return
    const oldest = live.credit.unsettled.entries().next().value
    if (!oldest) return
    const [id, unsettled] = oldest
    const wasLong =
      this.context.nowMs - unsettled.pushedAtMs >= FAILED_ATTEMPT_AFTER_MS && unsettled.pushedAtMs < arrivedUntilMs
    if (wasLong) this.failAttempt(deliveryRef(live, id, unsettled))
  }

  /**
   * The broker ends the session. A machine that a message ends sends no close frame: its session falls silent, or the next one
   * takes its place. Without a strike the suspect would block everything behind it for ever.
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

  /** The backstop: looks into the queue, hint or no hint. What was pushed before `arrivedUntilMs` has arrived. */
  poll(live: LiveSession, arrivedUntilMs: Millis): void {
    const { nowMs, limits } = this.context
    live.credit.lapse(nowMs - limits.leaseMs, nowMs - FORGET_AFTER_LEASES * limits.leaseMs)
    live.credit.clearSuspect(Math.min(nowMs - FAILED_ATTEMPT_AFTER_MS, arrivedUntilMs))
    this.lookAgain(live)
  }

  /** Something may wait for this session, or for a pool that it works for. */
  lookAgain(live: LiveSession): void {
    this.pools.refresh(live)
    this.notice(live)
  }

  /** Something may wait for this session: a hint, or a socket that can be written again. */
  notice(live: LiveSession): void {
    live.credit.noticeBacklog()
    this.claimSoon(live)
  }

  /**
   * A claim and a commit are answered in either order, and each may hold older mail of a sender than the other. So what is
   * born waits for a claim that may bring older mail, and what was claimed for births of the same sender; between them
   * the ids give the order.
   */
  private pushInserted(live: LiveSession, append: RoutedAppend, delivery: Delivery): void {
    if (live.credit.mayBring(append.sender)) return live.park(delivery, this.context.nowMs)
    this.pushParked(live, append, delivery.id)
    this.push(live, delivery)
  }

  pushFound(live: LiveSession, claimed: readonly Delivery[]): void {
    for (const delivery of inOrder(claimed, live.takeParked())) {
      const sender = live.mesh.byKey.get(delivery.sender)
      if (sender && live.credit.hasInsertLeases(sender.peer)) live.park(delivery, this.context.nowMs)
      else this.push(live, delivery)
    }
  }

  private pushParked(live: LiveSession, { from, sender }: RoutedAppend, before?: DeliveryId): void {
    if (!live.hasParked || live.credit.mayBring(sender)) return
    for (const delivery of live.takeParkedOf(from.peer.peerKey, before)) this.push(live, delivery)
  }

  private push(live: LiveSession, delivery: Delivery): void {
    pushTo(this.context, live, delivery)
  }

  private mayPush(live: LiveSession, insertLeaseEpoch: number): boolean {
    return this.isLive(live) && live.epoch === insertLeaseEpoch && !live.credit.isFenced
  }

  /**
   * Whoever serves this peer now should look. A session that counted the append knows already that it waits, and for
   * nothing else; but one whose birth lease was refused holds something older that it does not know of.
   */
  private wake(
    { meshId, recipient: peer, toLive, insertLeaseEpoch, remoteLeaseEpoch, pool }: RoutedAppend,
    stored: Stored,
  ): void {
    if (pool) return this.pools.wake(meshId, peer)
    const live = this.context.meshes.find(meshId)?.byNo.get(peer)?.live
    if (!live && stored.isLeased)
      this.context.effects.hint({ type: 'born', meshId, peer, epoch: remoteLeaseEpoch, id: stored.id })
    else if (!live) this.context.effects.hint({ type: 'wake', meshId, peer })
    else if (live !== toLive || insertLeaseEpoch !== 0) this.notice(live)
  }

  private fence(live: LiveSession): void {
    if (!this.isLive(live) || !live.credit.startFence()) return
    live.takeParked() // void: they will be claimed again
    this.context.counters.fences += 1
    this.context.effects.fence(live.socket, refOf(live))
  }

  private isLive(live: LiveSession): boolean {
    return live.peer.live === live
  }
}

type Stored = Extract<AppendOutcome, { status: 'stored' }>

function inOrder(claimed: readonly Delivery[], parked: readonly Delivery[]): readonly Delivery[] {
  if (parked.length === 0) return claimed
  return [...parked, ...claimed].sort(byPlace) // of one that is both, its first attempt counts
}
