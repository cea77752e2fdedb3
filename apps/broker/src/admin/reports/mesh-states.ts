/** Reports the mail flow of each mesh, from the census and the sessions of this broker. */
import type { LivePeer } from '@sealpost/core'
import type { Flow, MeshState, WaitingPeer, WaitReason } from '@sealpost/operator'
import { wholeUnits } from '@sealpost/operator/texts'
import type { Database } from '@sealpost/pg'
import type { MeshId, Millis, PeerNo } from '@sealpost/std'
import { countDeadLetters, findPeers, type MeshDeadLetters, type MeshEntry, type PeerEntry } from '@sealpost/store'
import { Cached, type Census, type MeshWaiting, type WaitingCount } from './quotas.ts'

/** The age at which a delivery that a peer processes is late: the default lease. */
const BEHIND_AFTER_MS = 30_000

interface WaitingFor {
  readonly live: LivePeer | undefined
  readonly isPool: boolean
  /** The number of deliveries that the peer has leased. */
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

/** Reasons that need no attention. */
const IS_WAITED_FOR: readonly WaitReason[] = ['away', 'do_not_disturb']

export function flowOf({ reason }: Pick<WaitingPeer, 'reason'>): Flow {
  if (reason === 'on_its_way') return 'flowing'
  return IS_WAITED_FOR.includes(reason) ? 'waiting' : 'behind'
}

const SEVERITY: readonly Flow[] = ['flowing', 'waiting', 'unknown', 'behind']
const severityOf = (flow: Flow): number => SEVERITY.indexOf(flow)
export const worstFlow = (flows: readonly Flow[]): Flow =>
  flows.reduce((worst, flow) => (severityOf(flow) > severityOf(worst) ? flow : worst), 'flowing')

export function compareWaiting(a: WaitingPeer, b: WaitingPeer): number {
  return severityOf(flowOf(b)) - severityOf(flowOf(a)) || b.oldestAgeMs - a.oldestAgeMs
}

export type Ranked = Pick<MeshState, 'flow' | 'deadLetters' | 'oldestAgeMs' | 'depth'>

/** Orders meshes by their need for attention: late deliveries, dead letters, the longest wait, the most deliveries. */
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

interface SentenceContext {
  readonly others: number
  readonly dead: { readonly count: number; readonly latestAgeMs: Millis } | undefined
}

/** Describes the peer with the worst delay and the dead letters in one or two sentences. */
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
  if (!worst) return 'No messages are waiting.'
  if (flow === 'flowing') return 'Messages are flowing.'
  const who = worst.name ?? `${worst.peerKey.slice(0, 8)}…`
  const rest = others > 0 ? `; messages wait for ${others.toLocaleString('en')} more peers` : ''
  return `${who} ${WHY[worst.reason]}: ${count(worst.depth)}, the oldest for ${wholeUnits(worst.oldestAgeMs)}${rest}.`
}

const WHY: Readonly<Record<WaitReason, string>> = {
  on_its_way: 'is processing messages',
  away: 'is offline',
  do_not_disturb: 'has the status do-not-disturb',
  not_reading: 'is connected but does not read its socket',
  not_settling: 'is connected but does not settle',
  catching_up: 'is connected and catching up',
  pool_unserved: 'is a pool without a free worker',
}

const count = (depth: number): string =>
  depth === 1 ? '1 message is waiting' : `${depth.toLocaleString('en')} messages are waiting`

interface Parts {
  readonly db: Database
  readonly census: Census
  readonly livePeers: (meshId: MeshId) => readonly LivePeer[]
}

type LiveByNo = ReadonlyMap<PeerNo, LivePeer>

/** The maximum number of connected peers, and of disconnected ones, to show per mesh. */
const CANDIDATES_MAX = 20
const WORST_MAX = 5

export class MeshStates {
  private readonly parts: Parts
  private readonly names: PeerNames
  private readonly dead: Cached<ReadonlyMap<MeshId, MeshDeadLetters>>

  constructor(parts: Parts) {
    this.parts = parts
    this.names = new PeerNames(parts.db)
    this.dead = new Cached(async () => new Map((await countDeadLetters(parts.db)).map((one) => [one.meshId, one])))
  }

  /** Returns the meshes with waiting deliveries or dead letters, by need for attention. @throws DatabaseError */
  async worst(limit: number): Promise<MeshId[]> {
    const { census } = this.parts
    const dead = await this.dead.read()
    const ranked = [...new Set([...census.counted.meshes.keys(), ...dead.keys()])].map((meshId) => {
      const mesh = census.counted.meshes.get(meshId)
      return {
        meshId,
        flow: mesh ? this.flowOfLive(mesh, this.liveIn(meshId)) : ('flowing' as const),
        oldestAgeMs: mesh ? census.ageMs(mesh.oldestAtMs) : 0,
        depth: mesh?.depth ?? 0,
        deadLetters: dead.get(meshId)?.count ?? 0,
      }
    })
    return ranked
      .sort(compareMeshes)
      .slice(0, limit)
      .map(({ meshId }) => meshId)
  }

  async stateOf({ meshId, name }: MeshEntry): Promise<MeshState> {
    const { census } = this.parts
    const mesh = census.counted.meshes.get(meshId)
    const live = this.liveIn(meshId)
    const waiting = mesh ? await this.waitingIn(meshId, mesh, live) : []
    const flow: Flow = census.isBlind ? 'unknown' : worstFlow(waiting.map(flowOf))
    const recipients = mesh?.recipientCount ?? 0
    const dead = (await this.dead.read()).get(meshId)
    const onTheirWay = waiting.filter(({ reason }) => reason === 'on_its_way').length
    return {
      meshId,
      name,
      flow,
      why: sentenceOf(flow, waiting[0], { others: Math.max(0, recipients - onTheirWay - 1), dead }),
      depth: mesh?.depth ?? 0,
      oldestAgeMs: mesh ? census.ageMs(mesh.oldestAtMs) : 0,
      recipients,
      sessions: live.size,
      deadLetters: dead?.count ?? 0,
      worst: waiting.slice(0, WORST_MAX),
    }
  }

  waitingFor(meshId: MeshId, entry: PeerEntry, live: LivePeer | undefined): WaitingPeer | null {
    const waiting = this.parts.census.counted.meshes.get(meshId)?.recipients.get(entry.peer)
    return waiting ? this.describe(entry, waiting, live) : null
  }

  async deepest(meshId: MeshId, limit: number): Promise<PeerEntry[]> {
    const recipients = this.parts.census.counted.meshes.get(meshId)?.recipients ?? new Map<PeerNo, WaitingCount>()
    const deepest = [...recipients].sort(([, a], [, b]) => b.depth - a.depth).slice(0, limit)
    return [
      ...(
        await this.names.find(
          meshId,
          deepest.map(([peer]) => peer),
        )
      ).values(),
    ]
  }

  liveIn(meshId: MeshId): LiveByNo {
    return new Map(this.parts.livePeers(meshId).map((live) => [live.peer, live]))
  }

  private flowOfLive({ recipients }: MeshWaiting, live: LiveByNo): Flow {
    const flows = [...live.values()].flatMap((peer) => {
      const waiting = recipients.get(peer.peer)
      if (!waiting) return []
      const oldestAgeMs = this.parts.census.ageMs(waiting.oldestAtMs)
      return [flowOf({ reason: reasonOf({ live: peer, isPool: false, held: waiting.held, oldestAgeMs }) })]
    })
    return worstFlow(flows)
  }

  private async waitingIn(meshId: MeshId, { recipients }: MeshWaiting, live: LiveByNo): Promise<WaitingPeer[]> {
    const byAge = [...recipients].sort(([, a], [, b]) => a.oldestAtMs - b.oldestAtMs)
    const here = byAge.filter(([peer]) => live.has(peer)).slice(0, CANDIDATES_MAX)
    const gone = byAge.filter(([peer]) => !live.has(peer)).slice(0, CANDIDATES_MAX)
    const candidates = [...here, ...gone]
    const entries = await this.names.find(
      meshId,
      candidates.map(([peer]) => peer),
    )
    return candidates
      .flatMap(([peer, waiting]) => {
        const entry = entries.get(peer)
        return entry ? [this.describe(entry, waiting, live.get(peer))] : []
      })
      .sort(compareWaiting)
  }

  private describe(
    { peerKey, name, isPool }: PeerEntry,
    waiting: WaitingCount,
    live: LivePeer | undefined,
  ): WaitingPeer {
    const oldestAgeMs = this.parts.census.ageMs(waiting.oldestAtMs)
    return {
      peerKey,
      name,
      depth: waiting.depth,
      oldestAgeMs,
      reason: reasonOf({ live, isPool, held: waiting.held, oldestAgeMs }),
      unsettled: live?.unsettled ?? 0,
    }
  }
}

const GOOD_FOR_MS = 60_000
const KNOWN_MAX = 10_000

export class PeerNames {
  private readonly db: Database
  private readonly known = new Map<string, { entry: PeerEntry; untilMs: Millis }>()

  constructor(db: Database) {
    this.db = db
  }

  async find(meshId: MeshId, peers: readonly PeerNo[]): Promise<Map<PeerNo, PeerEntry>> {
    const nowMs = performance.now()
    const fresh = (peer: PeerNo) => (this.known.get(`${meshId}/${peer}`)?.untilMs ?? 0) > nowMs
    const unknown = peers.filter((peer) => !fresh(peer))
    if (this.known.size + unknown.length > KNOWN_MAX) this.known.clear()
    const found = unknown.length > 0 ? await findPeers(this.db, meshId, unknown) : []
    for (const entry of found) this.known.set(`${meshId}/${entry.peer}`, { entry, untilMs: nowMs + GOOD_FOR_MS })
    const entries = peers.flatMap((peer) => this.known.get(`${meshId}/${peer}`)?.entry ?? [])
    return new Map(entries.map((entry) => [entry.peer, entry]))
  }
}
