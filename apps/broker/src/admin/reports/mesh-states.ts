/** The mail flow of each mesh: the census, combined with the sessions of this broker. */
import type { LivePeer } from '@sealpost/core'
import type { Flow, MeshState, WaitingPeer } from '@sealpost/operator'
import type { Database } from '@sealpost/pg'
import type { MeshId, Millis, PeerNo } from '@sealpost/std'
import { countDeadLetters, findPeers, type MeshDeadLetters, type MeshEntry, type PeerEntry } from '@sealpost/store'
import type { Census, MeshWaiting, WaitingCount } from './census.ts'
import { Cached } from './figures.ts'
import { compareMeshes, compareWaiting, flowOf, reasonOf, sentenceOf, worstFlow } from './verdict.ts'

interface Parts {
  readonly db: Database
  readonly census: Census
  readonly livePeers: (meshId: MeshId) => readonly LivePeer[]
}

type LiveByNo = ReadonlyMap<PeerNo, LivePeer>

/** Per mesh, for connected and disconnected peers each: a selection, not a complete list. */
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

  /** Returns the meshes with waiting deliveries or dead letters, worst first. @throws DatabaseError */
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
