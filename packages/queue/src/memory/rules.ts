/** The conditions of `parts.ts`, and the turns of a claim, in plain code. */
import { type DeliveryRef, PRIORITY_COSTS, readMarking, type VirtualTimes } from '@sealpost/protocol'
import { blockOf, type Millis } from '@sealpost/std'
import type { QueueOptions } from '../queue.ts'
import type { StoredDelivery } from './store.ts'

/** As in `sql.ts`: a lease further ahead than this counts as lapsed. */
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

/** Up to the one with which they reach the limit. */
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

/** What comes next, by each row's turn; the order of pushing is another matter. */
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

/** By the session of this epoch, in a pool by this member. */
export const isHeldBy = (
  row: StoredDelivery | undefined,
  { holder }: DeliveryRef,
  epoch: number,
): row is StoredDelivery => row?.lease?.epoch === epoch && row.lease.holder === holder
