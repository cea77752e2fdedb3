import type { LivePeer } from '@sealpost/core'
import type {
  Audit,
  DatabaseReport as DatabaseView,
  DeadLetters,
  GroupList,
  Invites,
  MeshPage,
  MeshReport,
  MeshState,
  Overview,
  PeerPage,
  PeerReport,
  PreparedSends,
  Problem,
  Shards,
  StorageReport,
  WaitingPeer,
} from '@sealpost/operator'
import type { Database } from '@sealpost/pg'
import { PRIORITIES } from '@sealpost/protocol'
import { GROUP_EPOCH_LAST, type MeshId, OperatingError, type PeerKey } from '@sealpost/std'
import {
  countAttachments,
  countMembers,
  type DeadLetterFilter,
  findMeshes,
  listAudit,
  listDeadLetters,
  listGroupViews,
  listInvites,
  listMeshes,
  listPeers,
  listPins,
  listPreparedSends,
  listShards,
  listSpaceViews,
  MEMBERS_COUNTED_MAX,
  type MeshEntry,
  type PeerEntry,
  type PreparedFilter,
} from '@sealpost/store'
import type { VersionFacts } from '../../server/server.ts'
import type { BrokerSamples } from '../routes.ts'
import { compareMeshes, type MeshStates, worstFlow } from './mesh-states.ts'
import type { Cached, Census, KnownFigures } from './quotas.ts'

// biome-ignore format: one thing

export interface ViewParts {
  readonly db: Database
  readonly facts: VersionFacts
  readonly census: Census
  readonly history: BrokerSamples
  readonly states: MeshStates
  readonly figures: Cached<KnownFigures>
  readonly connections: () => number
  /** Each warning is a line with a code, a colon and a sentence. */
  readonly warnings: () => readonly string[]
  readonly health: () => { readonly snapshotSeconds: number; readonly deadRows: number }
  readonly statementsWaiting: () => number
}

interface Page<Key> {
  readonly after: Key | null
  readonly limit: number
}

const WORST_MESHES = 20
const OF_A_MESH_MAX = 500
const BEFORE_ALL = '0'.repeat(32) as MeshId

export class Views {
  private readonly parts: ViewParts

  constructor(parts: ViewParts) {
    this.parts = parts
  }

  /** Returns the overview, without database figures while the database is unavailable. */
  async overview(): Promise<Overview> {
    const { facts, census, history, connections, health, statementsWaiting } = this.parts
    const { counted } = census
    const [meshes, figures] = await Promise.all([this.worstMeshes().catch(unlessAway([])), this.parts.figures.read().catch(unlessAway(null))]) // biome-ignore format: one thing
    return {
      atMs: Date.now(),
      shard: facts.shard,
      version: facts.version,
      gitSha: facts.gitSha,
      postgres: facts.postgres,
      durability: facts.durability,
      limits: facts.limits,
      flow: census.isBlind ? 'unknown' : worstFlow(meshes.map(({ flow }) => flow)),
      causes: this.causes(),
      now: history.latest,
      queue: {
        depth: counted.depth,
        oldestAgeMs: census.ageMs(counted.oldestAtMs),
        recipients: counted.recipientCount,
        seenAgoMs: counted.countedAtMs === null ? null : Math.round(performance.now() - counted.countedAtMs),
      },
      connections: connections(),
      database: {
        ...health(),
        statementsWaiting: statementsWaiting(),
        walBytesPerSecond: figures?.walBytesPerSecond ?? null,
        deadLetters: figures?.tables.find(({ name }) => name === 'dead_letter')?.rows ?? null,
      },
      meshes,
    }
  }

  async meshes({ after, limit }: Page<MeshId>): Promise<MeshPage> {
    const found = await listMeshes(this.parts.db, { after, limit: limit + 1 })
    const meshes = await Promise.all(found.slice(0, limit).map((entry) => this.described(entry)))
    return { meshes, next: found.length > limit ? meshes.at(-1)!.meshId : null }
  }

  /** Lists meshes: on the first page those that need attention, then the others by id. */
  async meshesByNeed({ after, limit }: Page<MeshId>): Promise<MeshPage> {
    const { db, states } = this.parts
    const needy = await states.worst(limit)
    const first = after === null ? await findMeshes(db, needy) : []
    const worst = (await Promise.all(first.map((entry) => this.described(entry)))).sort(compareMeshes)
    const room = limit - worst.length
    const { meshes, next } = await this.others(new Set(needy), { after, limit: room })
    return { meshes: [...worst, ...meshes], next }
  }

  private async others(without: ReadonlySet<MeshId>, { after, limit }: Page<MeshId>): Promise<MeshPage> {
    const found = await listMeshes(this.parts.db, { after, limit: limit + without.size + 1 })
    const others = found.filter(({ meshId }) => !without.has(meshId))
    const meshes = await Promise.all(others.slice(0, limit).map((entry) => this.described(entry)))
    const last = meshes.at(-1)?.meshId ?? after ?? BEFORE_ALL
    return { meshes, next: others.length > limit ? last : null }
  }

  async mesh(meshId: MeshId): Promise<MeshReport | undefined> {
    const [entry] = await findMeshes(this.parts.db, [meshId])
    if (!entry) return undefined
    const members = await countMembers(this.parts.db, meshId)
    return { ...(await this.described(entry)), members, membersAreMore: members === MEMBERS_COUNTED_MAX }
  }

  async peers(meshId: MeshId, { after, limit }: Page<PeerKey>): Promise<PeerPage> {
    const found = await listPeers(this.parts.db, meshId, { after, limit: limit + 1 })
    const peers = this.peersOf(meshId, found.slice(0, limit))
    return { peers, next: found.length > limit ? peers.at(-1)!.peerKey : null }
  }

  async waiting(meshId: MeshId, limit: number): Promise<PeerPage> {
    const found = await this.parts.states.deepest(meshId, limit)
    return { peers: this.peersOf(meshId, found), next: null }
  }

  async groups(meshId: MeshId): Promise<GroupList> {
    const groups = await listGroupViews(this.parts.db, meshId, OF_A_MESH_MAX)
    return {
      groups: groups.map(({ overAtMs: _, ...group }) => ({ ...group, isOver: group.epoch === GROUP_EPOCH_LAST })),
    }
  }

  async invites(meshId: MeshId): Promise<Invites> {
    return { invites: await listInvites(this.parts.db, meshId, OF_A_MESH_MAX) }
  }

  async kept(meshId: MeshId): Promise<StorageReport> {
    const { db } = this.parts
    const [spaces, attachments] = await Promise.all([listSpaceViews(db, meshId, OF_A_MESH_MAX), countAttachments(db, meshId)]) // biome-ignore format: one thing
    return {
      spaces: spaces.map((space) => ({ kind: space.spaceId === meshId ? 'mesh' : 'group', ...space })),
      attachments,
    }
  }

  async deadLetters(filter: DeadLetterFilter, limit: number): Promise<DeadLetters> {
    const found = await listDeadLetters(this.parts.db, filter, limit)
    return { deadLetters: found.map((letter) => ({ ...letter, priority: PRIORITIES[letter.priority]! })) }
  }

  async preparedSends(filter: PreparedFilter): Promise<PreparedSends> {
    const found = await listPreparedSends(this.parts.db, filter)
    return { preparedSends: found.map((send) => ({ ...send, priority: PRIORITIES[send.priority]! })) }
  }

  async audit(page: Parameters<typeof listAudit>[1]): Promise<Audit> {
    return { entries: await listAudit(this.parts.db, page) }
  }

  async database(): Promise<DatabaseView> {
    const { atMs: _, walBytes: __, ...figures } = await this.parts.figures.read()
    const { snapshots, tables, ...scalars } = figures
    const statementsWaiting = this.parts.statementsWaiting()
    return { ...scalars, statementsWaiting, snapshots: [...snapshots], tables: [...tables], warnings: this.causes() }
  }

  async shards(): Promise<Shards> {
    const [shards, pins] = await Promise.all([listShards(this.parts.db), listPins(this.parts.db)])
    return {
      shards: shards.map(({ certificate: _, ...shard }) => ({
        ...shard,
        isAlive: shard.leaseMs > 0,
        isSelf: shard.shardId === this.parts.facts.shard,
      })),
      pins: [...pins].map(([meshId, shard]) => ({ meshId, shard })),
    }
  }

  private causes(): Problem[] {
    const { warnings, census } = this.parts
    const causes = warnings().map((line) => {
      const colon = line.indexOf(': ')
      return { code: line.slice(0, colon), sentence: line.slice(colon + 2) }
    })
    if (census.isBlind) causes.unshift({ code: 'database_away', sentence: 'the queue could not be counted recently' })
    return causes
  }

  private async worstMeshes(): Promise<MeshState[]> {
    const worst = await this.parts.states.worst(WORST_MESHES)
    const found = worst.length > 0 ? await findMeshes(this.parts.db, worst) : []
    const states = await Promise.all(found.map((entry) => this.parts.states.stateOf(entry)))
    return states.sort(compareMeshes)
  }

  private async described(entry: MeshEntry) {
    return { ...(await this.parts.states.stateOf(entry)), createdAtMs: entry.createdAtMs }
  }

  private peersOf(meshId: MeshId, entries: readonly PeerEntry[]): PeerReport[] {
    const { states } = this.parts
    const liveByNo = states.liveIn(meshId)
    return entries.map((entry) => {
      const live = liveByNo.get(entry.peer)
      return peerOf(entry, live, states.waitingFor(meshId, entry, live))
    })
  }
}

function peerOf(entry: PeerEntry, live: LivePeer | undefined, waiting: WaitingPeer | null): PeerReport {
  const { shard, openedAtMs } = entry
  return {
    peerKey: entry.peerKey,
    name: entry.name,
    role: entry.role,
    kind: entry.isPool ? 'pool' : entry.person ? 'device' : 'peer',
    person: entry.person,
    status: entry.isPool ? 'pool' : entry.revokedAtMs !== null ? 'revoked' : (live?.availability ?? 'away'),
    depth: waiting?.depth ?? 0,
    oldestAgeMs: waiting?.oldestAgeMs ?? null,
    unsettled: live?.unsettled ?? 0,
    reason: waiting?.reason ?? null,
    consent: { policy: entry.consentPolicy, allowed: entry.allowed, blocked: entry.blocked },
    createdAtMs: entry.createdAtMs,
    revokedAtMs: entry.revokedAtMs,
    isCertified: entry.isPool ? null : entry.isCertified,
    lastSeen: shard !== null && openedAtMs !== null ? { shard, sinceMs: openedAtMs } : null,
  }
}

const unlessAway =
  <T>(instead: T) =>
  (error: unknown): T => {
    if (error instanceof OperatingError) return instead
    throw error
  }
