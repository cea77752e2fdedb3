/**
 * A commit in two steps. The first statement leaves undecided what it can't tell from a resend; the careful one decides
 * that. Nobody outside hears of it: what stays undecided fails the whole commit, since answering one envelope "come
 * again" while those behind it are stored would turn the order round.
 */
import type { Append, AppendOutcome } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'

export type Decision = AppendOutcome | { readonly status: 'undecided' }

/** What one statement did: a decision for each append, in their order. */
export interface Decided {
  readonly decisions: readonly Decision[]
  readonly enqueuedAtMs: Millis
}

export const UNDECIDED: Decision = { status: 'undecided' }

/** What the sure way did, in the places of the batch; `null`: it was in doubt and did nothing. */
export function decisionsAfter(
  appends: readonly Append[],
  sure: readonly Append[],
  stored: readonly AppendOutcome[] | null,
): readonly Decision[] {
  const outcomes = new Map(stored && sure.map((append, i) => [append, stored[i]!]))
  return appends.map((append) => outcomes.get(append) ?? UNDECIDED)
}

/** What is left for a careful statement. Of several alike in one batch only the first: the others follow it. */
export function undecidedOf(appends: readonly Append[], { decisions }: Decided): Append[] {
  const seen = new Set<string>()
  return appends.filter((append, i) => {
    if (decisions[i]!.status !== 'undecided' || seen.has(keyOf(append))) return false
    return seen.add(keyOf(append))
  })
}

/** The first statement's decisions, completed by the careful one's, which decided `undecidedOf` the same batch. */
export function mergeDecided(appends: readonly Append[], first: Decided, careful: Decided): Decided {
  const asked = undecidedOf(appends, first)
  const byKey = new Map(asked.map((append, i) => [keyOf(append), { append, decision: careful.decisions[i]! }]))
  const decisions = first.decisions.map((decision, i) => {
    if (decision.status !== 'undecided') return decision
    const { append, decision: decided } = byKey.get(keyOf(appends[i]!))!
    return append === appends[i] ? decided : decisionOfTwin(appends[i]!, append, decided)
  })
  return { decisions, enqueuedAtMs: first.enqueuedAtMs || careful.enqueuedAtMs }
}

export const isDecided = (decision: Decision): decision is AppendOutcome => decision.status !== 'undecided'

function decisionOfTwin(twin: Append, append: Append, decision: Decision): Decision {
  if (decision.status !== 'stored' && decision.status !== 'duplicate') return decision
  const isSame = twin.recipient === append.recipient && twin.priority === append.priority
  return { status: isSame && isSameBytes(twin.envelope, append.envelope) ? 'duplicate' : 'id_reused' }
}

const keyOf = ({ meshId, sender, envelopeId }: Append): string => `${meshId}${sender}/${envelopeId}`

export function isSameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i])
}
