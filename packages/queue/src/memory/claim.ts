/** What sessions are given of their queues: `CLAIM` and `COLLECT` in plain code. */
import {
  ALONE_AFTER_ATTEMPTS,
  byPlace,
  type Claimed,
  type Delivery,
  type RemoteClaimed,
  type RemoteWant,
  type Want,
} from '@sealpost/protocol'
import type { QueueOptions } from '../queue.ts'
import {
  inTurn,
  isBornElsewhere,
  isFree,
  isLapsed,
  isStruckOut,
  isUncollected,
  LEASE_FUTURE_MAX_MS,
  strike,
  withinBytes,
} from './rules.ts'
import { bodyKey, type MemoryStore, type StoredDelivery, type StoredMember } from './store.ts'

interface Place {
  readonly store: MemoryStore
  readonly options: QueueOptions
}

/** The session must be current. Rows that are `gone` are picked and not returned: the statement sees an older snapshot. */
export function takeFor(
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
    .filter((row) => row.expiresAtMs > nowMs && !isStruckOut(row, options, nowMs))
  const ready = inTurn(free, virtualTimes).slice(0, limit)
  const lapsed = ready.filter((row) => row.attempts > 0 && isLapsed(row, session.epoch, nowMs))
  const oldest = lapsed.reduce<StoredDelivery | null>((min, row) => (min && min.id < row.id ? min : row), null)
  const claimSizeOf = (row: StoredDelivery) => (isAlone(row) ? Number.MAX_SAFE_INTEGER : sizeOf(store, row))
  const taken = withinBytes(ready, limitBytes, claimSizeOf)
    .filter((row, i) => i === 0 || !isAlone(row))
    .filter((row) => !gone.includes(row))
  if (oldest && taken.includes(oldest)) strike(oldest, nowMs)
  const hasMore = ready.length >= limit || taken.length < ready.length
  const leased = taken.sort(byPlace).map((row): Delivery => {
    const mayHaveBeen = row.lease !== null && row.lease.epoch !== null && !fresh.includes(row)
    row.attempts = Math.max(row.attempts, mayHaveBeen ? 1 : 0) + 1
    row.lease = { epoch: session.epoch, untilMs: nowMs + options.leaseMs }
    return store.deliveryOf(row)
  })
  return { status: 'claimed', deliveries: leased, hasMore }
}

/** The same. */
export function collectFor(
  { store, options }: Place,
  { session, deliveries }: StoredMember,
  { ids, limit, limitBytes }: RemoteWant,
): RemoteClaimed {
  const { nowMs } = store
  const sound = (row: StoredDelivery) => {
    const untilMs = row.lease?.untilMs ?? 0
    const isLong = untilMs > nowMs + options.leaseMs / 2 && untilMs <= nowMs + LEASE_FUTURE_MAX_MS
    return isBornElsewhere(row, session.epoch) && isLong
  }
  const found = deliveries
    .filter((row) => ids.from <= row.id && row.id <= ids.to)
    .filter((row) => isBornElsewhere(row, session.epoch) || isFree(row, session.epoch, nowMs))
    .filter((row) => row.expiresAtMs > nowMs && !isStruckOut(row, options, nowMs))
    .sort((a, b) => a.id - b.id)
    .slice(0, limit)
  const bar = found.findIndex((row) => !sound(row))
  const clear = bar < 0 ? found : found.slice(0, bar)
  const within = withinBytes(clear, limitBytes, (row) => sizeOf(store, row))
  const byteCount = within.reduce((sum, row) => sum + sizeOf(store, row), 0)
  const hasMore = bar >= 0 || within.length >= limit || byteCount >= limitBytes
  return { status: 'collected', deliveries: within.map((row) => ({ ...store.deliveryOf(row), attempt: 1 })), hasMore }
}

const isAlone = ({ attempts }: StoredDelivery): boolean => attempts >= ALONE_AFTER_ATTEMPTS

function sizeOf(store: MemoryStore, row: StoredDelivery): number {
  return row.envelope.length + (row.bodyId === null ? 0 : store.bodies.get(bodyKey(row))!.bytes.length)
}
