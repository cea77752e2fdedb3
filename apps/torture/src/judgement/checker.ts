/**
 * Checks a history against the promises. An acked message is delivered, queued, or dead for a reason (P1, P2). No peer
 * receives a message that was not sent to it (P4, P9). One send leads to one delivery (P5). First deliveries keep their
 * order (P6). Each repeated push has a cause (P7), and the application does not see it (P8).
 */
import { type Break, type History, type Push, type Sent, sessionOf } from './ledger.ts'

export interface Breach {
  readonly rule: Rule
  readonly atMs: number
  readonly sentence: string
}

export type Rule = 'lost' | 'misdelivered' | 'misordered' | 'duplicated' | 'tampered' | 'struck' | 'unanswered'

/** A redelivery and the cause that permits it. */
interface Repeat {
  readonly atMs: number
  readonly cause: Cause
}

interface HistoryFindings {
  readonly breaches: readonly Breach[]
  readonly repeats: readonly Repeat[]
}

export interface CheckOptions {
  readonly leaseMs: number
}

export function findingsOf(history: History, terms: CheckOptions): HistoryFindings {
  const repeats: Repeat[] = []
  const breaches = [
    ...lost(history),
    ...misdelivered(history),
    ...misordered(history, 'firstPushed'),
    ...misordered(history, 'firstGot'),
    ...repeated(history, terms, repeats),
    ...shownTwice(history),
    ...tampered(history),
    ...struck(history),
  ]
  return { breaches, repeats }
}

export const noRepeats = (): Record<Cause, number> =>
  Object.fromEntries(CAUSES.map((cause) => [cause, 0])) as Record<Cause, number>

const nameOf = ({ from, to, n }: Pick<Sent, 'from' | 'to' | 'n'>): string => `message ${n} from ${from} to ${to}`

function* lost({ sent, got, leftovers }: History): Generator<Breach> {
  for (const one of sent) {
    const { ackedAtMs, envelopeId, refusedWith } = one
    if (ackedAtMs === null && refusedWith === null)
      yield { rule: 'unanswered', atMs: one.sentAtMs, sentence: `${nameOf(one)} has no reply` }
    if (ackedAtMs === null || got.has(envelopeId!) || leftovers.has(envelopeId!)) continue
    const sentence = `${nameOf(one)} (${envelopeId}) was acked, but is neither delivered nor queued nor a dead letter`
    yield { rule: 'lost', atMs: ackedAtMs, sentence }
  }
}

function* misdelivered({ byEnvelope, pushes, got, invented }: History): Generator<Breach> {
  for (const envelopeId of invented)
    yield { rule: 'misdelivered', atMs: got.get(envelopeId)![0]!.atMs, sentence: `no peer sent ${envelopeId}` }
  for (const [envelopeId, list] of pushes) {
    const sent = byEnvelope.get(envelopeId)
    if (!sent) continue // neither acked nor handed out, so its sender is unknown
    for (const { atMs, peer, sender } of list)
      if (peer !== sent.to || sender !== sent.from)
        yield { rule: 'misdelivered', atMs, sentence: `${nameOf(sent)} arrived at ${peer} as a message from ${sender}` }
  }
  for (const [envelopeId, list] of got)
    for (const { atMs, isWhole, peer } of list)
      if (!isWhole || byEnvelope.get(envelopeId)?.to !== peer)
        yield { rule: 'misdelivered', atMs, sentence: `${envelopeId} differs from the message sent to ${peer}` }
}

/** Checks that each pair's first deliveries ascend. A short-lived message may be overtaken while the clock was set. */
function* misordered(history: History, by: 'firstPushed' | 'firstGot'): Generator<Breach> {
  const last = new Map<string, number>()
  for (const [peer, envelopeId] of history[by]) {
    const sent = history.byEnvelope.get(envelopeId)
    if (!sent || sent.to !== peer) continue
    const pair = `${sent.from}>${sent.to}`
    const before = last.get(pair) ?? -1
    last.set(pair, Math.max(before, sent.n))
    if (sent.n > before) continue
    const [first] = (by === 'firstPushed' ? history.pushes : history.got).get(envelopeId)!
    if (sent.kind === 'brief' && isClockSet(history.breaks, sent.sentAtMs, first!.atMs)) continue
    yield { rule: 'misordered', atMs: first!.atMs, sentence: `${nameOf(sent)} arrived after message ${before}` }
  }
}

/** Checks that each repeated push has a cause (P7), the next attempt number and the same id in the queue. */
function* repeated(history: History, { leaseMs }: CheckOptions, repeats: Repeat[]): Generator<Breach> {
  for (const [envelopeId, list] of history.pushes)
    for (const [i, push] of list.entries()) {
      if (i === 0) continue
      const { atMs, peer } = push
      const before = list[i - 1]!
      const cause = causeOf(push, before, { history, envelopeId, leaseMs })
      const attempts = `attempt ${push.attempt} after attempt ${before.attempt}`
      const sentence = `${envelopeId} arrived at ${peer} again, ${attempts}, ${Math.round(atMs - before.atMs)} ms later`
      if (cause === null) yield { rule: 'duplicated', atMs, sentence }
      else repeats.push({ atMs, cause })
    }
}

/** Checks that the SDK hands each message out once per process, unless the application asked for a retry. */
function* shownTwice({ got, putOffAtMs }: History): Generator<Breach> {
  for (const [envelopeId, list] of got) {
    if (list.length === 1 || putOffAtMs.has(envelopeId)) continue
    const lives = new Set(list.map(({ life }) => life))
    if (lives.size < list.length)
      yield { rule: 'duplicated', atMs: list.at(-1)!.atMs, sentence: `an application received ${envelopeId} twice` }
  }
}

function* tampered({ alarms }: History): Generator<Breach> {
  for (const { atMs, peer, what, envelopeId } of alarms)
    yield { rule: 'tampered', atMs, sentence: `peer ${peer} reported ${what} ${envelopeId}`.trimEnd() }
}

/** Checks that failed attempts make dead letters only if the handler throws, not because of a fault. */
function* struck({ leftovers, byEnvelope }: History): Generator<Breach> {
  for (const [envelopeId, reason] of leftovers) {
    const sent = byEnvelope.get(envelopeId)
    if (reason !== 'strikes' || !sent || sent.kind === 'poison') continue
    yield {
      rule: 'struck',
      atMs: sent.sentAtMs,
      sentence: `${nameOf(sent)} became a dead letter without a failing recipient`,
    }
  }
}

const CAUSES = ['session', 'lease', 'fence', 'clock', 'retry'] as const
/**
 * The cause of a repeated push (P7), as far as the ledger shows it.
 * - `session`: the session ended before the settlement was committed, or its peer closed it without a use of the delivery.
 * - `lease`: the delivery was not settled within the lease.
 * - `fence`: a reply from the database was lost, which voids the leases that it may have contained.
 * - `clock`: the database clock was set.
 * - `retry`: the recipient asked for a retry.
 */
export type Cause = (typeof CAUSES)[number]

interface RepeatContext {
  readonly history: History
  readonly envelopeId: string
  readonly leaseMs: number
}

/** The longest time from a lease to its push, without a stall. */
const ON_ITS_WAY_MS = 1000
/**
 * The time for which a logged failure may have an effect. Brokers log a kind once per second, and retry fences later.
 */
const FAILURE_REACH_MS = 8000
/** Matches scenarios that set the database clock. */
const SETS_CLOCK = /^clock/

/** Returns the cause of a repeated push; null if nothing permits it. */
function causeOf(push: Push, before: Push, { history, envelopeId, leaseMs }: RepeatContext): Cause | null {
  const { breaks, brokerFailuresMs, putOffAtMs } = history
  if (push.deliveryId !== before.deliveryId) return null
  if (push.attempt === before.attempt) return isReturned(push, before, { history, envelopeId }) ? 'session' : null
  // A lease on insert may lapse immediately, and a claim precede the first push.
  if (isClockSet(breaks, before.atMs - ON_ITS_WAY_MS, push.atMs)) return 'clock'
  if (push.attempt < before.attempt) return null
  if (putOffAtMs.get(envelopeId)?.some((ms) => ms >= before.atMs && ms <= push.atMs)) return 'retry'
  if (push.session !== before.session) return 'session'
  if (push.atMs - leasedByMs(before.atMs, history.stalls) >= leaseMs) return 'lease'
  if (brokerFailuresMs.some((ms) => ms >= before.atMs - FAILURE_REACH_MS && ms <= push.atMs)) return 'fence'
  return null
}

/** Returns whether the peer closed its session normally and its application did not get the message in that session. */
function isReturned(push: Push, before: Push, { history, envelopeId }: Omit<RepeatContext, 'leaseMs'>): boolean {
  const isGot = history.got.get(envelopeId)?.some(({ atMs }) => atMs >= before.atMs && atMs <= push.atMs)
  return push.session !== before.session && history.finished.has(sessionOf(before)) && !isGot
}

/** Returns when a push's lease may have begun at the earliest, before any stall. */
function leasedByMs(pushedAtMs: number, stalls: RepeatContext['history']['stalls']): number {
  let atMs = pushedAtMs - ON_ITS_WAY_MS
  for (const { fromMs, untilMs } of stalls)
    if (fromMs <= pushedAtMs && untilMs >= pushedAtMs - ON_ITS_WAY_MS) atMs = Math.min(atMs, fromMs - ON_ITS_WAY_MS)
  return atMs
}

const isClockSet = (breaks: readonly Break[], afterMs: number, beforeMs: number): boolean =>
  breaks.some(({ scenario, fromMs, untilMs }) => SETS_CLOCK.test(scenario) && fromMs <= beforeMs && untilMs >= afterMs)
