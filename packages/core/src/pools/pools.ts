/**
 * Dispatches the deliveries of pools to the members on this shard. Each pool has one claim in flight, which lists the
 * free members, least loaded and least recently served first. The database assigns the deliveries, so that shards can
 * share a pool.
 */
import {
  ALONE_AFTER_ATTEMPTS,
  type Delivery,
  type FrameOf,
  POOL_SEATS_MAX,
  type PoolClaimed,
  type PoolEntry,
  type PoolSlot,
  type Release,
  readBoxes,
} from '@sealpost/protocol'
import type { DeliveryId, MeshId, PeerNo } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { ClaimWantOf } from '../effects.ts'
import { deliveryRef, type LiveSession, type PoolState, type Seat } from '../model.ts'

/** The maximum number of slots in a claim. Each delivery may have the maximum size. */
const SLOTS_MAX = 64
const SLOTS_OF_SEAT_MAX = 8

/** A want with the seats for its slots. */
interface SeatedWant extends ClaimWantOf<'pool'> {
  readonly of: PoolState
  readonly seats: readonly Seat[]
}

export class PoolDispatcher {
  private readonly context: Context
  /** Pools whose last claim has no known outcome. */
  private readonly failed = new Set<PoolState>()

  constructor(context: Context) {
    this.context = context
  }

  /** Handles a join: looks the pool up. With a credit of 0, the session leaves the pool instead. */
  asked(live: LiveSession, frame: FrameOf<'joinPool'>): FrameOf<'poolJoined'> | undefined {
    if (frame.credit > 0) {
      live.joins(frame)
      return undefined
    }
    live.joining.delete(frame.pool)
    const seat = [...live.seats.values()].find(({ pool }) => pool.poolId === frame.pool)
    if (seat) this.leave(seat)
    return { type: 'poolJoined', ref: frame.ref, pool: frame.pool, outcome: 'left' }
  }

  /** Call once the pool was looked up. `entry` is null if the pool does not exist. */
  joined(live: LiveSession, frame: FrameOf<'joinPool'>, entry: PoolEntry | null): FrameOf<'poolJoined'>['outcome'] {
    if (!live.joining.has(frame.pool)) return 'left'
    if (live.joining.get(frame.pool) === frame.ref) live.joining.delete(frame.pool)
    if (!entry) return 'unknown_pool'
    const pool = this.learn(live, entry)
    if (!pool.members.has(live.peer.peerKey)) return 'not_in_pool'
    const seat = live.seats.get(pool.peer)
    if (!seat && live.seats.size >= POOL_SEATS_MAX) return 'too_many'
    const credit = Math.min(frame.credit, this.context.limits.creditMax)
    if (seat) seat.credit = credit
    else this.seat(live, pool, credit)
    this.look(live.mesh.meshId, pool)
    return 'joined'
  }

  /** Call when the owner has changed the pool through this shard. */
  wasSet(meshId: MeshId, entry: PoolEntry): void {
    this.context.effects.hint({ type: 'stalePool', meshId, pool: entry.poolId })
    const mesh = this.context.meshes.find(meshId)
    if (mesh) this.learn({ mesh }, entry)
  }

  /** Applies a pool's newest statement, which ends the seats of former members. */
  learn({ mesh }: Pick<LiveSession, 'mesh'>, entry: PoolEntry): PoolState {
    const pool = mesh.pools.add(entry, this.context.nowMs)
    for (const seat of [...pool.seats.values()])
      if (!pool.members.has(seat.live.peer.peerKey)) this.disconnectMember(seat)
    return pool
  }

  /** Call when deliveries were stored for the pool or released. Wakes other shards if no member here is free. */
  wake(meshId: MeshId, poolNo: PeerNo, count = 1): void {
    if (!this.noticed(meshId, poolNo)) return this.context.effects.hint({ type: 'wake', meshId, peer: poolNo })
    this.context.meshes.find(meshId)!.pools.numbered(poolNo)!.unserved += count
  }

  /** Call when a delivery may wait for the pool. Returns whether a member here is free. */
  noticed(meshId: MeshId, poolNo: PeerNo): boolean {
    const pool = this.context.meshes.find(meshId)?.pools.numbered(poolNo)
    if (!pool) return false
    for (const seat of pool.seats.values()) seat.mayFind = true
    this.look(meshId, pool)
    return [...pool.seats.values()].some((seat) => this.roomOf(seat) > 0)
  }

  /** Call when the session may accept more deliveries. */
  refresh(live: LiveSession): void {
    for (const seat of live.seats.values()) {
      seat.mayFind = true
      this.look(live.mesh.meshId, seat.pool)
    }
  }

  /** Call when the session has ended a delivery of its own or of a pool. */
  deliveryEnded(live: LiveSession, id: DeliveryId, poolNo: PeerNo | undefined): void {
    if (poolNo !== undefined) live.seats.get(poolNo)?.held.delete(id)
    for (const { pool } of live.seats.values()) this.look(live.mesh.meshId, pool)
  }

  sessionEnded(live: LiveSession): void {
    for (const seat of [...live.seats.values()]) this.leave(seat)
  }

  released(releases: readonly Release[]): void {
    const ofPools = releases.filter(({ delivery }) => delivery.holder !== undefined)
    const byPool = Map.groupBy(ofPools, ({ delivery: { meshId, recipient } }) => meshId + recipient)
    for (const given of byPool.values()) {
      const { meshId, recipient } = given[0]!.delivery
      this.wake(meshId, recipient, given.length)
    }
  }

  claimed(want: ClaimWantOf<'pool'>, claimed: PoolClaimed): void {
    const { of: pool, seats } = want as SeatedWant
    pool.isClaiming = false
    if (claimed.status === 'locked') for (const seat of seats) seat.mayFind = true
    else {
      const served = new Set(claimed.dealt.map(({ slot }) => slot))
      // A slot that received a delivery, or lost its pick to another statement, may find more.
      for (const [slot, seat] of seats.entries()) if (claimed.hasMore || served.has(slot)) seat.mayFind = true
      pool.unserved = Math.max(0, pool.unserved - claimed.dealt.length)
      if (claimed.dealt.length > 0) pool.isWary = claimed.dealt.some(({ delivery }) => isSuspect(delivery))
      pool.fairQueue.served(claimed.dealt.map(({ delivery }) => delivery))
      for (const { slot, delivery } of claimed.dealt) this.deal(seats[slot]!, delivery)
      for (const slot of claimed.strangers) this.disconnectMember(seats[slot]!)
    }
    this.look(want.meshId, pool)
    if (!pool.isClaiming && pool.unserved > 0) this.passOn(want.meshId, pool)
  }

  /** Deliveries that a lost claim has assigned become free when their leases lapse. */
  claimFailed(want: ClaimWantOf<'pool'>): void {
    const { of: pool, seats } = want as SeatedWant
    pool.isClaiming = false
    for (const seat of seats) seat.mayFind = true
    this.failed.add(pool)
  }

  tick(): void {
    for (const pool of this.failed) {
      const [live] = pool.seats.keys()
      if (live) this.look(live.mesh.meshId, pool)
    }
    this.failed.clear()
  }

  /** Wakes other shards, because the members here lack room or a box, or accept only urgent mail. */
  private passOn(meshId: MeshId, pool: PoolState): void {
    pool.unserved = 0
    this.context.effects.hint({ type: 'wake', meshId, peer: pool.peer })
  }

  private seat(live: LiveSession, pool: PoolState, credit: number): void {
    const seat: Seat = { live, pool, credit, held: new Set(), mayFind: true, servedAt: 0 }
    live.seats.set(pool.peer, seat)
    pool.seats.set(live, seat)
  }

  private look(meshId: MeshId, pool: PoolState): void {
    if (pool.isClaiming) return
    const seats = this.freeSlots(pool)
    if (seats.length === 0) return
    for (const seat of seats) seat.mayFind = false
    pool.isClaiming = true
    this.context.counters.claims += 1
    const want: SeatedWant = {
      kind: 'pool',
      meshId,
      pool: pool.peer,
      slots: seats.map(slotOf),
      virtualTimes: pool.fairQueue.now,
      of: pool,
      seats,
    }
    this.context.effects.claim(want)
  }

  /** Returns a seat for each slot, in serving order. */
  private freeSlots(pool: PoolState): Seat[] {
    const slots: { seat: Seat; load: number }[] = []
    for (const seat of pool.seats.values()) {
      const room = seat.mayFind ? Math.min(this.roomOf(seat), pool.isWary ? 1 : SLOTS_OF_SEAT_MAX) : 0
      for (let i = 0; i < room; i++) slots.push({ seat, load: seat.held.size + i })
    }
    slots.sort((a, b) => a.load - b.load || a.seat.servedAt - b.seat.servedAt)
    return slots.slice(0, SLOTS_MAX).map(({ seat }) => seat)
  }

  private roomOf({ live, pool, held, credit }: Seat): number {
    const { unsettled, isCongested, hasBytesFree, suspect } = live.credit
    if (isCongested || !hasBytesFree || suspect !== null) return 0
    for (const id of held) if (!unsettled.has(id)) held.delete(id) // sessions forget deliveries after a very long time
    if (pool.isWary && held.size > 0) return 0
    return Math.max(0, credit - held.size)
  }

  private deal({ live, pool, held }: Seat, delivery: Delivery): void {
    const current = live.seats.get(pool.peer)
    const ref = deliveryRef(live, delivery.id, { priority: delivery.priority, pool: pool.peer })
    // The member left while the claim was in flight, so release the delivery.
    if (current?.held !== held) return this.release([{ delivery: ref, epoch: live.openedEpoch, isUntouched: false }])
    const envelope = boxFor(live.peer.peer, pool, delivery)
    if (!envelope) {
      const reject = { delivery: ref, epoch: live.openedEpoch, reason: 'no box for a member that it names' }
      return this.context.effects.updateDeliveries({ type: 'reject', rejects: [reject], withReceipt: [] })
    }
    current.servedAt = this.context.nextTick()
    held.add(delivery.id)
    this.context.push(live, { ...delivery, envelope }, pool.peer)
  }

  private leave({ live, pool, held }: Seat): void {
    live.seats.delete(pool.peer)
    pool.seats.delete(live)
    const releases: Release[] = []
    for (const id of held) {
      const unsettled = live.credit.settled(id)
      if (!unsettled) continue
      releases.push({ delivery: deliveryRef(live, id, unsettled), epoch: live.openedEpoch, isUntouched: false })
    }
    if (releases.length > 0) this.release(releases)
  }

  private release(releases: readonly Release[]): void {
    this.context.effects.updateDeliveries({ type: 'release', releases })
  }

  private disconnectMember(seat: Seat): void {
    if (seat.live.seats.get(seat.pool.peer) !== seat) return
    this.leave(seat)
    const { poolId } = seat.pool
    this.context.send(seat.live, [{ type: 'poolJoined', ref: 0, pool: poolId, outcome: 'not_in_pool' }])
  }
}

/** Returns the member's box, which may be sealed to a former key of the member. */
function boxFor(member: PeerNo, { members }: PoolState, { envelope }: Delivery): Uint8Array | null {
  return readBoxes(envelope)?.find(({ peer }) => members.get(peer) === member)?.box ?? null
}

const isSuspect = ({ attempt }: Delivery): boolean => attempt > ALONE_AFTER_ATTEMPTS

const slotOf = ({ live }: Seat): PoolSlot => ({
  member: live.peer.peer,
  epoch: live.openedEpoch,
  priorityMax: live.credit.priorityMax,
})
