/** `sql-pools.ts` said again in plain code. */
import {
  type Delivery,
  type PoolClaimed,
  type PoolEntry,
  type PoolSlot,
  type PoolWant,
  PRIORITY_COSTS,
  type Release,
} from '@sealpost/protocol'
import type { DeliveryId, MeshId, PeerKey, PeerNo, PoolId, ShardId } from '@sealpost/std'
import type { QueueOptions } from '../queue.ts'
import { inTurn, isHeldBy, isStruckOut, LEASE_FUTURE_MAX_MS, strike } from './rules.ts'
import { bodyKey, type MemoryStore, type StoredDelivery, type StoredPool } from './store.ts'

export class MemoryPools {
  private readonly store: MemoryStore
  private readonly shard: ShardId
  private readonly options: QueueOptions

  constructor(store: MemoryStore, shard: ShardId, options: QueueOptions) {
    this.store = store
    this.shard = shard
    this.options = options
  }

  claim(wants: readonly PoolWant[]): PoolClaimed[] {
    return wants.map((want) => {
      const recipient = this.store.find(want.meshId, want.pool)
      if (!recipient || recipient.session.isLocked) return { status: 'locked' }
      return this.deal(want, this.store.findPool(want.meshId, want.pool) ?? NO_POOL)
    })
  }

  giveBack(gifts: readonly Release[]): void {
    for (const { delivery, epoch } of gifts) {
      const row = this.store.findDelivery(delivery)
      if (isHeldBy(row, delivery, epoch)) row.lease = null
    }
  }

  find(meshId: MeshId, pools: readonly PoolId[]): PoolEntry[] {
    return pools.flatMap((poolId) => {
      const pool = this.store.findByKey(meshId, poolId as string as PeerKey)?.peer
      const stored = pool && this.store.findPool(meshId, pool)
      if (!stored) return []
      const members = stored.members.map((peer) => ({ peer, peerKey: this.store.find(meshId, peer)!.binding.peer }))
      return [{ meshId, poolId, pool, epoch: stored.epoch, members }]
    })
  }

  private deal(want: PoolWant, { members }: StoredPool): PoolClaimed {
    const dealt: { slot: number; delivery: Delivery }[] = []
    const strangers: number[] = []
    const taken = new Set<DeliveryId>()
    const turns: [number, number, number] = [...want.virtualTimes]
    for (const [i, slot] of want.slots.entries()) {
      if (!members.includes(slot.member)) strangers.push(i)
      const mayTake = members.includes(slot.member) && this.isCurrent(want, slot)
      const row = mayTake ? this.firstFor(slot, { want, members, taken, turns }) : undefined
      if (!row) continue
      taken.add(row.id)
      turns[row.priority]! += PRIORITY_COSTS[row.priority]!
      dealt.push({ slot: i, delivery: this.lease(row, slot) })
    }
    return { status: 'claimed', dealt, strangers, hasMore: false }
  }

  private firstFor(
    { member, priorityMax }: PoolSlot,
    {
      want,
      members,
      taken,
      turns,
    }: {
      want: PoolWant
      members: readonly PeerNo[]
      taken: ReadonlySet<DeliveryId>
      turns: PoolWant['virtualTimes']
    },
  ): StoredDelivery | undefined {
    const { nowMs } = this.store
    const free = this.store
      .find(want.meshId, want.pool)!
      .deliveries.filter((row) => row.priority <= priorityMax && !taken.has(row.id) && this.isFree(row, members))
      .filter((row) => row.expiresAtMs > nowMs && !isStruckOut(row, this.options, nowMs))
      .filter((row) => this.store.bodies.get(bodyKey(row))?.readers?.includes(member))
    return inTurn(free, turns)[0]
  }

  private lease(row: StoredDelivery, { member, epoch }: PoolSlot): Delivery {
    const { nowMs } = this.store
    if (row.lease && row.lease.untilMs <= nowMs && this.isHoldersSession(row)) strike(row, nowMs)
    row.lease = { epoch, untilMs: nowMs + this.options.leaseMs, holder: member }
    row.attempts += 1
    return this.store.deliveryOf(row)
  }

  private isFree(row: StoredDelivery, members: readonly PeerNo[]): boolean {
    const { lease } = row
    if (lease === null || lease.untilMs <= this.store.nowMs) return true
    if (lease.untilMs > this.store.nowMs + LEASE_FUTURE_MAX_MS) return true
    return lease.holder !== undefined && !(members.includes(lease.holder) && this.isHoldersSession(row))
  }

  private isHoldersSession({ meshId, lease }: StoredDelivery): boolean {
    if (lease?.holder === undefined) return false
    return this.store.find(meshId, lease.holder)?.session.openedEpoch === lease.epoch
  }

  private isCurrent({ meshId }: PoolWant, { member, epoch }: PoolSlot): boolean {
    const session = this.store.find(meshId, member)?.session
    return session?.shard === this.shard && session.openedEpoch === epoch
  }
}

const NO_POOL: StoredPool = { epoch: 0, members: [] }
