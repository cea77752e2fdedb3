/** Whether mail flows, and if not, why: decided here, so that the console, the command line and a test say the same. */
import type { LivePeer } from '@sealpost/core'
import type { Flow, MeshState, WaitingPeer, WaitReason } from '@sealpost/operator'
import { wholeUnits } from '@sealpost/operator/units'
import type { Millis } from '@sealpost/std'

/** The usual lease: mail that a peer works on is not late before it. */
const BEHIND_AFTER_MS = 30_000

export interface WaitingFor {
  readonly live: LivePeer | undefined
  readonly isPool: boolean
  /** Deliveries leased to it, as the queue has them. */
  readonly held: number
  readonly oldestAgeMs: Millis
}

export function reasonOf({ live, isPool, held, oldestAgeMs }: WaitingFor): WaitReason {
  if (!live && !isPool) return 'away'
  if (live?.availability === 'dnd') return 'do_not_disturb'
  if (oldestAgeMs < BEHIND_AFTER_MS) return 'on_its_way'
  if (!live) return 'pool_unserved'
  if (live.isCongested) return 'not_reading'
  return live.unsettled > 0 || held > 0 ? 'not_settling' : 'catching_up'
}

/** A peer that is away, or wants no mail now, is nobody's fault. */
const IS_WAITED_FOR: readonly WaitReason[] = ['away', 'do_not_disturb']

export function flowOf({ reason }: Pick<WaitingPeer, 'reason'>): Flow {
  if (reason === 'on_its_way') return 'flowing'
  return IS_WAITED_FOR.includes(reason) ? 'waiting' : 'behind'
}

const SEVERITY: readonly Flow[] = ['flowing', 'waiting', 'unknown', 'behind']
const severityOf = (flow: Flow): number => SEVERITY.indexOf(flow)
export const worstFlow = (flows: readonly Flow[]): Flow =>
  flows.reduce((worst, flow) => (severityOf(flow) > severityOf(worst) ? flow : worst), 'flowing')

/** The worst first, then the oldest. */
export function compareWaiting(a: WaitingPeer, b: WaitingPeer): number {
  return severityOf(flowOf(b)) - severityOf(flowOf(a)) || b.oldestAgeMs - a.oldestAgeMs
}

export type Ranked = Pick<MeshState, 'flow' | 'deadLetters' | 'oldestAgeMs' | 'depth'>

/** What needs somebody first: mail that is behind, what was given up, what has waited longest, the most of it. */
export function compareMeshes(a: Ranked, b: Ranked): number {
  return (
    Number(b.flow === 'behind') - Number(a.flow === 'behind') ||
    Number(b.deadLetters > 0) - Number(a.deadLetters > 0) ||
    severityOf(b.flow) - severityOf(a.flow) ||
    b.oldestAgeMs - a.oldestAgeMs ||
    b.depth - a.depth ||
    b.deadLetters - a.deadLetters
  )
}

export interface Besides {
  /** For whom mail waits besides the worst. */
  readonly others: number
  readonly dead: { readonly count: number; readonly latestAgeMs: Millis } | undefined
}

/** In a sentence or two: about the worst of those for whom mail waits, and of what was given up. */
export function sentenceOf(flow: Flow, worst: WaitingPeer | undefined, { others, dead }: Besides): string {
  const waits = waitingSentence(flow, worst, others)
  return dead ? `${waits} ${deadSentence(dead)}` : waits
}

function deadSentence({ count, latestAgeMs }: NonNullable<Besides['dead']>): string {
  const letters = count === 1 ? '1 dead letter,' : `${count.toLocaleString('en')} dead letters, the latest`
  return `${letters} ${wholeUnits(latestAgeMs)} ago.`
}

function waitingSentence(flow: Flow, worst: WaitingPeer | undefined, others: number): string {
  if (flow === 'unknown') return 'The queue was not looked at lately: the database may be away.'
  if (!worst) return 'Nothing waits.'
  if (flow === 'flowing') return 'Mail is on its way.'
  const who = worst.name ?? `${worst.peerKey.slice(0, 8)}…`
  const rest = others > 0 ? `; mail waits for ${others.toLocaleString('en')} more` : ''
  return `${who} ${WHY[worst.reason]}: ${count(worst.depth)}, the oldest for ${wholeUnits(worst.oldestAgeMs)}${rest}.`
}

const WHY: Readonly<Record<WaitReason, string>> = {
  on_its_way: 'has mail on its way',
  away: 'is away',
  do_not_disturb: 'does not want to be disturbed',
  not_reading: 'is connected but does not read',
  not_settling: 'is connected but does not settle',
  catching_up: 'is connected and still catching up',
  pool_unserved: 'is a pool without a free member',
}

const count = (depth: number): string => (depth === 1 ? '1 waits' : `${depth.toLocaleString('en')} wait`)
