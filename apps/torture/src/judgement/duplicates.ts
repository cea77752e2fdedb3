/** Why a delivery may be pushed again (P7), as far as the ledger shows it. */
import type { Break, History, Push } from './history.ts'

export const CAUSES = ['session', 'lease', 'fence', 'clock', 'retry'] as const
/**
 * - `session`: its session ended before the settlement was committed.
 * - `lease`: it was not settled within the lease.
 * - `fence`: an answer of the database was lost, which voids the leases it may have given.
 * - `clock`: the database's clock was set.
 * - `retry`: its recipient gave it back.
 */
export type Cause = (typeof CAUSES)[number]

export interface RepeatContext {
  readonly history: Pick<History, 'breaks' | 'stalls' | 'brokerFailuresMs' | 'putOffAtMs'>
  readonly envelopeId: string
  readonly leaseMs: number
}

/** From the statement that gave the lease to the push that the recipient sees, when nothing stands still. */
const ON_ITS_WAY_MS = 1000
/** A broker complains once a second of each kind of failure, and a fence that fails is tried again after a while. */
const FAILURE_REACH_MS = 8000
/** Scenarios that set the database's clock. */
const SETS_CLOCK = /^clock/

/** `null`: nothing allows it. */
export function causeOf(push: Push, before: Push, { history, envelopeId, leaseMs }: RepeatContext): Cause | null {
  const { breaks, brokerFailuresMs, putOffAtMs } = history
  if (push.deliveryId !== before.deliveryId || push.attempt === before.attempt) return null
  if (isClockSet(breaks, before.atMs - ON_ITS_WAY_MS, push.atMs)) return 'clock' // a lease that was over when it was given: the claim of it may come before its birth
  if (push.attempt < before.attempt) return null
  if (putOffAtMs.get(envelopeId)?.some((ms) => ms >= before.atMs && ms <= push.atMs)) return 'retry'
  if (push.session !== before.session) return 'session'
  if (push.atMs - leasedByMs(before.atMs, history.stalls) >= leaseMs) return 'lease'
  if (brokerFailuresMs.some((ms) => ms >= before.atMs - FAILURE_REACH_MS && ms <= push.atMs)) return 'fence'
  return null
}

/** The earliest moment at which the lease of a push can have begun: what stands still holds up what was claimed before. */
function leasedByMs(pushedAtMs: number, stalls: RepeatContext['history']['stalls']): number {
  let atMs = pushedAtMs - ON_ITS_WAY_MS
  for (const { fromMs, untilMs } of stalls)
    if (fromMs <= pushedAtMs && untilMs >= pushedAtMs - ON_ITS_WAY_MS) atMs = Math.min(atMs, fromMs - ON_ITS_WAY_MS)
  return atMs
}

export const isClockSet = (breaks: readonly Break[], afterMs: number, beforeMs: number): boolean =>
  breaks.some(({ scenario, fromMs, untilMs }) => SETS_CLOCK.test(scenario) && fromMs <= beforeMs && untilMs >= afterMs)
