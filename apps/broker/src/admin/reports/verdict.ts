/** Decides whether messages flow, and if not, why; shared by the console, the CLI and tests. */
import type { LivePeer } from '@sealpost/core'
import type { Flow, MeshState, WaitingPeer, WaitReason } from '@sealpost/operator'
import { wholeUnits } from '@sealpost/operator/units'
import type { Millis } from '@sealpost/std'

/** The default lease: a delivery that a peer is processing is not late before that. */
const BEHIND_AFTER_MS = 30_000

export interface WaitingFor {
  readonly live: LivePeer | undefined
  readonly isPool: boolean
  /** Deliveries leased to it, by the queue's count. */
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

/** Reasons that need no attention: the peer is absent, or has set `dnd`. */
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

/** Orders meshes by need: deliveries that are behind, dead letters, the longest wait, the most deliveries. */
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

export interface SentenceContext {
  readonly others: number
  readonly dead: { readonly count: number; readonly latestAgeMs: Millis } | undefined
}

/** Returns a sentence or two: about the peer with the worst delay, and about dead letters. */
export function sentenceOf(flow: Flow, worst: WaitingPeer | undefined, { others, dead }: SentenceContext): string {
  const waits = waitingSentence(flow, worst, others)
  return dead ? `${waits} ${deadSentence(dead)}` : waits
}

function deadSentence({ count, latestAgeMs }: NonNullable<SentenceContext['dead']>): string {
  const letters = count === 1 ? '1 dead letter,' : `${count.toLocaleString('en')} dead letters, the latest`
  return `${letters} ${wholeUnits(latestAgeMs)} ago.`
}

function waitingSentence(flow: Flow, worst: WaitingPeer | undefined, others: number): string {
  if (flow === 'unknown') return 'The queue was not counted recently: the database may be unavailable.'
  if (!worst) return 'Nothing waits.'
  if (flow === 'flowing') return 'Messages are flowing.'
  const who = worst.name ?? `${worst.peerKey.slice(0, 8)}…`
  const rest = others > 0 ? `; messages wait for ${others.toLocaleString('en')} more peers` : ''
  return `${who} ${WHY[worst.reason]}: ${count(worst.depth)}, the oldest for ${wholeUnits(worst.oldestAgeMs)}${rest}.`
}

const WHY: Readonly<Record<WaitReason, string>> = {
  on_its_way: 'is processing messages',
  away: 'is offline',
  do_not_disturb: 'has the status do-not-disturb',
  not_reading: 'is connected but does not read',
  not_settling: 'is connected but does not settle',
  catching_up: 'is connected and catching up',
  pool_unserved: 'is a pool without a free member',
}

const count = (depth: number): string => (depth === 1 ? '1 waits' : `${depth.toLocaleString('en')} wait`)
