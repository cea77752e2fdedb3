/**
 * A commit takes up to two statements. The optimistic one leaves pending whatever may be a resend; the checked one compares
 * it with the ledger. An append that stays pending fails the whole commit: to nack one envelope while those behind it are
 * stored would change the order.
 */
import type { Append, AppendOutcome } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'

export type Outcome = AppendOutcome | { readonly status: 'pending' }

/** The result of one statement: an outcome for each append, in their order. */
export interface StatementOutcomes {
  readonly outcomes: readonly Outcome[]
  readonly enqueuedAtMs: Millis
}

export const PENDING: Outcome = { status: 'pending' }

/** The outcomes of the optimistic statement, in the order of the batch. `stored` is `null` if it was in doubt and changed nothing. */
export function outcomesAfter(
  appends: readonly Append[],
  optimistic: readonly Append[],
  stored: readonly AppendOutcome[] | null,
): readonly Outcome[] {
  const outcomes = new Map(stored && optimistic.map((append, i) => [append, stored[i]!]))
  return appends.map((append) => outcomes.get(append) ?? PENDING)
}

/** The appends that the checked statement decides. Of several with one id only the first: the others follow its outcome. */
export function pendingOf(appends: readonly Append[], { outcomes }: StatementOutcomes): Append[] {
  const seen = new Set<string>()
  return appends.filter((append, i) => {
    if (outcomes[i]!.status !== 'pending' || seen.has(keyOf(append))) return false
    return seen.add(keyOf(append))
  })
}

/** Completes the outcomes of the first statement by those of the checked one, which decided `pendingOf` the same batch. */
export function mergeOutcomes(
  appends: readonly Append[],
  first: StatementOutcomes,
  checked: StatementOutcomes,
): StatementOutcomes {
  const asked = pendingOf(appends, first)
  const byKey = new Map(asked.map((append, i) => [keyOf(append), { append, outcome: checked.outcomes[i]! }]))
  const outcomes = first.outcomes.map((outcome, i) => {
    if (outcome.status !== 'pending') return outcome
    const { append, outcome: checkedOutcome } = byKey.get(keyOf(appends[i]!))!
    return append === appends[i] ? checkedOutcome : outcomeOfTwin(appends[i]!, append, checkedOutcome)
  })
  return { outcomes, enqueuedAtMs: first.enqueuedAtMs || checked.enqueuedAtMs }
}

export const isFinal = (outcome: Outcome): outcome is AppendOutcome => outcome.status !== 'pending'

function outcomeOfTwin(twin: Append, append: Append, outcome: Outcome): Outcome {
  if (outcome.status !== 'stored' && outcome.status !== 'duplicate') return outcome
  const isSame = twin.recipient === append.recipient && twin.priority === append.priority
  return { status: isSame && isSameBytes(twin.envelope, append.envelope) ? 'duplicate' : 'id_reused' }
}

const keyOf = ({ meshId, sender, envelopeId }: Append): string => `${meshId}${sender}/${envelopeId}`

export function isSameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i])
}
