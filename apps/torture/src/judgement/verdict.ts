/** Judges each scenario: its figures, and whether the promises were kept. */

import type { Cause } from './checker.ts'
import { type Breach, type CheckOptions, findingsOf, noRepeats, type Rule } from './checker.ts'
import type { Break, History } from './ledger.ts'

type ScenarioOutcome =
  | 'held'
  | 'broken'
  /** The fault affected nothing, or too few messages were sent. */
  | 'invalid'
  | 'skipped'

export interface VerdictLine {
  readonly scenario: string
  readonly outcome: ScenarioOutcome
  /** Why the outcome is not `held`. */
  readonly reasons: readonly string[]
  readonly rounds: number
  readonly acked: number
  readonly delivered: number
  readonly queued: number
  readonly expired: number
  readonly dead: number
  readonly breaches: Readonly<Record<Rule, number>>
  /** Permitted redeliveries, by cause. */
  readonly repeats: Readonly<Record<Cause, number>>
  readonly longestPauseMs: number
  /** The longest time from a fault's end to an affected peer's ack; null if there was none. */
  readonly recoveryMs: number | null
  readonly brokerRssMb: number | null
}

/** Observations in addition to the ledgers. */
export interface Noticed {
  /** Failures of the whole run, such as a dead broker. */
  readonly faults: readonly string[]
  /** Why a scenario's fault affected nothing. */
  readonly missed: ReadonlyMap<string, string>
  readonly brokerRssMb: number | null
}

export interface Bounds extends CheckOptions {
  /** The longest permitted recovery; null means no limit. */
  readonly recoveryMs: number | null
}

const RULES: readonly Rule[] = ['lost', 'misdelivered', 'misordered', 'duplicated', 'tampered', 'struck', 'unanswered']
const REASONS_MAX = 5
const noBreaches = () => Object.fromEntries(RULES.map((rule) => [rule, 0])) as Record<Rule, number>

/** Returns each scenario's line. Events before the first fault count for the first. */
export function linesOf(
  history: History,
  scenarios: readonly string[],
  noticed: Noticed,
  bounds: Bounds,
): VerdictLine[] {
  const breaks = [...history.breaks].sort((a, b) => a.fromMs - b.fromMs)
  const scenarioAt = (ms: number): string => breaks.findLast(({ fromMs }) => fromMs <= ms)?.scenario ?? scenarios[0]!
  const drafts = new Map(scenarios.map((scenario) => [scenario, draftOf(scenario)]))
  const draftAt = (ms: number) => drafts.get(scenarioAt(ms)) ?? drafts.get(scenarios[0]!)!
  countMessages(history, draftAt)
  const { breaches, repeats } = findingsOf(history, bounds)
  for (const breach of breaches) {
    const draft = draftAt(breach.atMs)
    draft.breaches[breach.rule] += 1
    draft.reasons.push(sentenceOf(breach))
  }
  for (const { atMs, cause } of repeats) draftAt(atMs).repeats[cause] += 1
  const acks = history.sent.flatMap(({ ackedAtMs, from }) => (ackedAtMs === null ? [] : [{ atMs: ackedAtMs, from }]))
  acks.sort((a, b) => a.atMs - b.atMs)
  for (const [i, { atMs }] of acks.entries())
    if (i > 0) draftAt(atMs).longestPauseMs = Math.max(draftAt(atMs).longestPauseMs, atMs - acks[i - 1]!.atMs)
  for (const one of breaks) noteRecovery(one, acks, drafts.get(one.scenario), bounds)
  const all = [...drafts.values()]
  const isEmpty = all.every(({ acked }) => acked === 0)
  return all.map((draft) => finished(draft, draft.acked > 0 || isEmpty ? noticed : { ...noticed, faults: [] }))
}

export const skippedLine = (scenario: string, reason: string): VerdictLine => ({
  ...draftOf(scenario),
  outcome: 'skipped',
  reasons: [reason],
})

type Draft = { -readonly [K in keyof VerdictLine]: VerdictLine[K] } & {
  reasons: string[]
  breaches: Record<Rule, number>
  repeats: Record<Cause, number>
}

const draftOf = (scenario: string): Draft => ({
  scenario,
  outcome: 'held',
  reasons: [],
  rounds: 0,
  acked: 0,
  delivered: 0,
  queued: 0,
  expired: 0,
  dead: 0,
  breaches: noBreaches(),
  repeats: noRepeats(),
  longestPauseMs: 0,
  recoveryMs: null,
  brokerRssMb: null,
})

/** Counts the messages sent during each scenario. */
function countMessages({ sent, got, leftovers }: History, draftAt: (ms: number) => Draft): void {
  for (const { ackedAtMs, envelopeId, sentAtMs } of sent) {
    const draft = draftAt(sentAtMs)
    if (ackedAtMs !== null) draft.acked += 1
    if (envelopeId === null) continue
    if (got.has(envelopeId)) draft.delivered += 1
    const reason = leftovers.get(envelopeId)
    if (reason === null) draft.queued += 1
    else if (reason === 'expired') draft.expired += 1
    else if (reason !== undefined) draft.dead += 1
  }
}

interface Ack {
  readonly atMs: number
  readonly from: number
}

function noteRecovery(one: Break, acks: readonly Ack[], draft: Draft | undefined, bounds: Bounds): void {
  if (!draft) return
  draft.rounds += 1
  const reached = one.peers && new Set(one.peers)
  const isReached = ({ from }: Ack) => reached === null || reached.has(from)
  const first = acks.find((ack) => ack.atMs >= one.untilMs && isReached(ack))
  if (!first) return void draft.reasons.push('no affected peer received an ack after the fault')
  const ms = first.atMs - one.untilMs
  draft.recoveryMs = Math.max(draft.recoveryMs ?? 0, ms)
  if (bounds.recoveryMs !== null && ms > bounds.recoveryMs)
    draft.reasons.push(`the first new ack came ${Math.round(ms)} ms after the fault`)
}

function finished(draft: Draft, { faults, missed, brokerRssMb }: Noticed): VerdictLine {
  const { scenario } = draft
  const miss = missed.get(scenario) ?? (draft.rounds === 0 || draft.acked === 0 ? 'too few events happened' : undefined)
  const reasons = [...draft.reasons, ...faults]
  if (reasons.length > 0) return { ...draft, outcome: 'broken', reasons: reasons.slice(0, REASONS_MAX), brokerRssMb }
  if (miss) return { ...draft, outcome: 'invalid', reasons: [miss], brokerRssMb }
  return { ...draft, brokerRssMb }
}

const sentenceOf = ({ rule, sentence }: Breach): string => `${rule}: ${sentence}`
