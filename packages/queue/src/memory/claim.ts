import {
  ALONE_AFTER_ATTEMPTS,
  byPlace,
  type Claimed,
  type Delivery,
  type DeliveryRef,
  type PoolClaimed,
  type PoolEntry,
  type PoolSlot,
  type PoolWant,
  PRIORITY_COSTS,
  type Release,
  type RemoteClaimed,
  type RemoteWant,
  readMarking,
  type VirtualTimes,
  type Want,
} from '@sealpost/protocol'
import {
  blockOf,
  type DeliveryId,
  type MeshId,
  type Millis,
  type PeerKey,
  type PeerNo,
  type PoolId,
  type ShardId,
} from '@sealpost/std'
import type { QueueOptions } from '../queue.ts'
import { bodyKey, type MemoryDatabase, type StoredDelivery, type StoredMember, type StoredPool } from './store.ts'

interface Place {
  readonly store: MemoryDatabase
  readonly options: QueueOptions
}

/**
 * Implements `CLAIM` for a current session. `gone` contains removed rows that the statement's snapshot still contains.
 */
export function claimFor(
  { store, options }: Place,
  { session, deliveries }: StoredMember,
  want: Want,
  gone: readonly StoredDelivery[],
): Claimed {
  const { nowMs } = store
  const { ids, priorityMax, virtualTimes, limit, limitBytes, collected } = want
  const fresh = deliveries.filter((row) => isUncollected(row, session.epoch, collected))
  const free = [...deliveries, ...gone]
    .sort(byPlace)
    .filter((row) => ids.from <= row.id && row.id <= ids.to && row.priority <= priorityMax)
    .filter((row) => isFree(row, session.epoch, nowMs) || fresh.includes(row))
    .filter((row) => row.expiresAtMs > nowMs && !hasFailedTooOften(row, options, nowMs))
  const ready = byVirtualTime(free, virtualTimes).slice(0, limit)
  const lapsed = ready.filter((row) => row.attempts > 0 && isLapsed(row, session.epoch, nowMs))
  const oldest = lapsed.reduce<StoredDelivery | null>((min, row) => (min && min.id < row.id ? min : row), null)
  const claimSizeOf = (row: StoredDelivery) => (isAlone(row) ? Number.MAX_SAFE_INTEGER : sizeOf(store, row))
  const taken = withinBytes(ready, limitBytes, claimSizeOf)
    .filter((row, i) => i === 0 || !isAlone(row))
    .filter((row) => !gone.includes(row))
  if (oldest && taken.includes(oldest)) addFailedAttempt(oldest, nowMs)
  const hasMore = ready.length >= limit || taken.length < ready.length
  const leased = taken.sort(byPlace).map((row): Delivery => {
    const mayHaveBeen = row.lease !== null && row.lease.epoch !== null && !fresh.includes(row)
    row.attempts = Math.max(row.attempts, mayHaveBeen ? 1 : 0) + 1
    row.lease = { epoch: session.epoch, untilMs: nowMs + options.leaseMs }
    return store.deliveryOf(row)
  })
  return { status: 'claimed', deliveries: leased, hasMore }
}

export function collectFor(
  { store, options }: Place,
  { session, deliveries }: StoredMember,
  { ids, limit, limitBytes }: RemoteWant,
): RemoteClaimed {
  const { nowMs } = store
  const sound = (row: StoredDelivery) => {
    const untilMs = row.lease?.untilMs ?? 0
    const isLong = untilMs > nowMs + options.leaseMs / 2 && untilMs <= nowMs + LEASE_FUTURE_MAX_MS
    return isRemotelyLeased(row, session.epoch) && isLong
  }
  const found = deliveries
    .filter((row) => ids.from <= row.id && row.id <= ids.to)
    .filter((row) => isRemotelyLeased(row, session.epoch) || isFree(row, session.epoch, nowMs))
    .filter((row) => row.expiresAtMs > nowMs && !hasFailedTooOften(row, options, nowMs))
    .sort((a, b) => a.id - b.id)
    .slice(0, limit)
  const bar = found.findIndex((row) => !sound(row))
  const clear = bar < 0 ? found : found.slice(0, bar)
  const within = withinBytes(clear, limitBytes, (row) => sizeOf(store, row))
  const byteCount = within.reduce((sum, row) => sum + sizeOf(store, row), 0)
  const hasMore = bar >= 0 || within.length >= limit || byteCount >= limitBytes
  return { status: 'collected', deliveries: within.map((row) => ({ ...store.deliveryOf(row), attempt: 1 })), hasMore }
}

/** Implements `RELEASE`. */
export function releaseIn(store: MemoryDatabase, releases: readonly Release[]): void {
  for (const { delivery, epoch, isUntouched } of releases) {
    const row = store.findDelivery(delivery)
    if (!isHeldBy(row, delivery, epoch)) continue
    row.lease = null
    if (isUntouched) row.attempts = Math.max(row.attempts - 1, 0)
  }
}

const isAlone = ({ attempts }: StoredDelivery): boolean => attempts >= ALONE_AFTER_ATTEMPTS

function sizeOf(store: MemoryDatabase, row: StoredDelivery): number {
  return row.envelope.length + (row.bodyId === null ? 0 : store.bodies.get(bodyKey(row))!.bytes.length)
}

export class MemoryPools {
  private readonly store: MemoryDatabase
  private readonly shard: ShardId
  private readonly options: QueueOptions

  constructor(store: MemoryDatabase, shard: ShardId, options: QueueOptions) {
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
      .filter((row) => row.expiresAtMs > nowMs && !hasFailedTooOften(row, this.options, nowMs))
      .filter((row) => this.store.bodies.get(bodyKey(row))?.readers?.includes(member))
    return byVirtualTime(free, turns)[0]
  }

  private lease(row: StoredDelivery, { member, epoch }: PoolSlot): Delivery {
    const { nowMs } = this.store
    if (row.lease && row.lease.untilMs <= nowMs && this.isHoldersSession(row)) addFailedAttempt(row, nowMs)
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

/** The remaining time above which a lease counts as lapsed, as in `sql/parts.ts`. */
export const LEASE_FUTURE_MAX_MS = 5 * 60_000

export function isFree({ lease }: StoredDelivery, epoch: number, nowMs: Millis): boolean {
  if (lease === null || (lease.epoch !== null && lease.epoch < epoch)) return true
  return lease.untilMs <= nowMs || lease.untilMs > nowMs + LEASE_FUTURE_MAX_MS
}

export const isRemotelyLeased = ({ attempts, lease }: StoredDelivery, epoch: number): boolean =>
  attempts === 0 && lease?.epoch === epoch

export const isUncollected = (row: StoredDelivery, epoch: number, collected: readonly number[]): boolean =>
  isRemotelyLeased(row, epoch) && !collected.some((id) => blockOf(id) === blockOf(row.id) && row.id <= id)

export function isLapsed({ lease }: StoredDelivery, epoch: number, nowMs: Millis): boolean {
  return lease !== null && lease.epoch === epoch && lease.untilMs <= nowMs
}

/** Returns the rows up to and including the one that reaches the byte limit. */
export function withinBytes(
  rows: readonly StoredDelivery[],
  limitBytes: number,
  sizeOf: (row: StoredDelivery) => number,
): StoredDelivery[] {
  let byteCount = 0
  return rows.filter((row) => {
    const isWithin = byteCount < limitBytes
    byteCount += sizeOf(row)
    return isWithin
  })
}

export const isReceipt = ({ terms }: StoredDelivery): boolean =>
  terms !== null && readMarking(terms)?.kind === 'receipt'

export function wantsReceipt({ terms }: StoredDelivery): boolean {
  const marking = terms && readMarking(terms)
  return marking?.kind === 'terms' && marking.terms.receipts !== 'none'
}

/** Sorts rows by virtual time, in which a claim picks them; pushes use `byPlace`. */
export function byVirtualTime(rows: readonly StoredDelivery[], turns: VirtualTimes): StoredDelivery[] {
  const counts = [0, 0, 0]
  return rows
    .map((row) => {
      counts[row.priority]! += 1
      return { row, turn: turns[row.priority]! + PRIORITY_COSTS[row.priority]! * counts[row.priority]! }
    })
    .sort((a, b) => a.turn - b.turn || a.row.priority - b.row.priority)
    .map(({ row }) => row)
}

const FAILED_ATTEMPTS_COUNTED = 32_767

export function addFailedAttempt(row: StoredDelivery, nowMs: Millis): void {
  row.failedAttempts = Math.min(row.failedAttempts + 1, FAILED_ATTEMPTS_COUNTED)
  row.firstFailedAttemptAtMs ??= nowMs
}

export function hasFailedTooOften(
  { failedAttempts, firstFailedAttemptAtMs }: StoredDelivery,
  { failedAttemptsMax, failedAttemptsSpanMs }: Pick<QueueOptions, 'failedAttemptsMax' | 'failedAttemptsSpanMs'>,
  nowMs: Millis,
): boolean {
  return (
    failedAttempts >= failedAttemptsMax &&
    firstFailedAttemptAtMs !== null &&
    firstFailedAttemptAtMs <= nowMs - failedAttemptsSpanMs
  )
}

/** Returns whether the session with this epoch, and in a pool this member, holds the lease. */
export const isHeldBy = (
  row: StoredDelivery | undefined,
  { holder }: DeliveryRef,
  epoch: number,
): row is StoredDelivery => row?.lease?.epoch === epoch && row.lease.holder === holder
