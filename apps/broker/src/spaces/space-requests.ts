/**
 * Handles members' requests about spaces: parses bytes and checks signatures. The statements of `packages/history`
 * decide.
 */
import type { Bus } from '@sealpost/bus'
import { type PeerSpace, type Rate, Rates, type SpaceFacts } from '@sealpost/core'
import {
  type EntryLimits,
  type EntryOutcome,
  type EntryWrite,
  EntryWriter,
  type GrantBatch,
  Grants,
  type Space,
  type SpaceMember,
  Spaces,
} from '@sealpost/history'
import { readEntry, readSpace } from '@sealpost/identity'
import type { Database, Pipeline } from '@sealpost/pg'
import type { Append } from '@sealpost/protocol'
import type { HintOf } from '@sealpost/protocol/hints'
import { recordedMessagesOf } from '@sealpost/queue'
import { type MeshId, type Millis, type PeerKey, type SpaceId, toHex } from '@sealpost/std'
import type { Config } from '../config/config.ts'
import type { Authenticator } from '../directory/authenticator.ts'
import { type HttpRefusal, shareNameOf, type TokenHolder } from '../http/tokens.ts'
import type { Metrics } from '../telemetry/metrics.ts'

/** The bus, which notifies followers here of events on any shard. Notifications may be lost or superfluous. */
type Topics = Pick<Bus, 'publish' | 'subscribe' | 'follow' | 'unfollow'>

export class SpaceHints {
  private readonly bus: Topics
  private readonly followers = new Map<MeshId, Set<Follower>>()
  private readonly listeners: ((space: HintOf<'staleSpace'>) => void)[] = []

  constructor(bus: Topics) {
    this.bus = bus
    bus.subscribe({
      onHints: (_, hints) => {
        for (const hint of hints) if (hint.type === 'happened') this.wake(hint.meshId, hint.space)
      },
      onFollowing: (meshes) => {
        for (const meshId of meshes) for (const { wake } of this.followers.get(meshId) ?? []) wake()
      },
    })
  }

  /** Calls `wake` when there may be new events. Returns a function that unfollows. */
  follow(meshId: MeshId, spaceId: SpaceId, wake: () => void): () => void {
    const follower = { spaceId, wake }
    const others = this.followers.get(meshId) ?? new Set()
    this.followers.set(meshId, others.add(follower))
    if (others.size === 1) this.bus.follow(meshId)
    return () => {
      if (!others.delete(follower) || others.size > 0) return
      this.followers.delete(meshId)
      this.bus.unfollow(meshId)
    }
  }

  happened(meshId: MeshId, spaceId: SpaceId): void {
    this.wake(meshId, spaceId)
    this.bus.publish({ type: 'happened', meshId, space: spaceId })
  }

  /** Call after a commit has stored these messages and recorded some of them. */
  recorded(appends: readonly Append[]): void {
    for (const { meshId, spaceId } of recordedMessagesOf(appends)) this.happened(meshId, spaceId)
  }

  /** Call after a change of terms or keys, so that all shards drop their caches. */
  changed(meshId: MeshId, spaceId: SpaceId): void {
    const hint = { type: 'staleSpace', meshId, space: spaceId } as const
    for (const listener of this.listeners) listener(hint)
    this.bus.publish(hint)
  }

  /** Calls `listener` after changes on this shard only. */
  onChange(listener: (space: HintOf<'staleSpace'>) => void): void {
    this.listeners.push(listener)
  }

  private wake(meshId: MeshId, spaceId: SpaceId): void {
    for (const follower of this.followers.get(meshId) ?? []) if (follower.spaceId === spaceId) follower.wake()
  }
}

interface Follower {
  readonly spaceId: SpaceId
  readonly wake: () => void
}

export interface SpaceLimits {
  readonly entries: EntryLimits
  readonly entryBytesMax: number
  /** The maximum rate of a user's entries; null for no limit. */
  readonly writes: Rate | null
}

interface Parts {
  readonly asking: Database
  /** A separate connection, so that no message waits for entries. */
  readonly writing: Pipeline
  readonly authenticator: Authenticator
  readonly spaceHints: SpaceHints
}

export type SpacePlace = { readonly meshId: MeshId; readonly spaceId: SpaceId }
export type WriteOutcome = EntryOutcome | { readonly status: 'malformed' | 'too_large' }

export interface SpaceCounters {
  written: number
  conflicts: number
  refused: number
}

const FORGET_EVERY_MS: Millis = 10_000
const BUSY: HttpRefusal = { code: 'try_later', retryAfterMs: 1000 }

export class SpaceRequests {
  readonly spaces: Spaces
  readonly grants: Grants
  readonly counters: SpaceCounters = { written: 0, conflicts: 0, refused: 0 }
  private readonly writer: EntryWriter
  private readonly parts: Parts
  private readonly limits: SpaceLimits
  private readonly rates: Rates | null

  constructor(parts: Parts, limits: SpaceLimits) {
    this.parts = parts
    this.limits = limits
    this.spaces = new Spaces(parts.asking)
    this.grants = new Grants(parts.asking)
    this.writer = new EntryWriter(parts.writing, limits.entries)
    this.rates = limits.writes && new Rates(limits.writes)
    if (this.rates) setInterval(() => this.rates?.forgetFull(performance.now()), FORGET_EVERY_MS).unref()
  }

  async put(holder: TokenHolder, place: SpacePlace, statement: Uint8Array): Promise<{ epoch: number } | HttpRefusal> {
    if (holder.meshId !== place.meshId) return { code: 'not_owner' }
    const terms = await this.parts.authenticator.inTurn(() => readSpace(statement) ?? 'malformed')
    if (terms === null) return BUSY
    if (terms === 'malformed' || terms.meshId !== place.meshId || terms.spaceId !== place.spaceId)
      return { code: 'body_malformed' }
    if (terms.owner !== holder.peerKey) return { code: 'not_owner' }
    const outcome = await this.spaces.put(holder, { ...terms, statement: terms.bytes })
    if (outcome === 'stale') return { code: 'stale_epoch' }
    if (outcome === 'not_owner') return { code: 'not_owner' }
    this.parts.spaceHints.changed(place.meshId, place.spaceId)
    return { epoch: terms.epoch }
  }

  /** Returns the space if the holder belongs to it. @throws OperatingError */
  async open(holder: TokenHolder, { meshId, spaceId }: SpacePlace): Promise<Space | HttpRefusal> {
    const space = holder.meshId === meshId ? await this.spaces.find(holder, spaceId) : null
    return space ?? { code: 'space_unknown' }
  }

  /** Returns a page of members. @throws OperatingError */
  async members(space: Space, after: PeerKey, max: number): Promise<{ members: SpaceMember[]; isLast: boolean }> {
    const found = await this.spaces.members(space, after, max + 1)
    return { members: found.slice(0, max), isLast: found.length <= max }
  }

  /**
   * Stores key grants. Returns the epoch before the call, which shows whether it was as expected. @throws
   * OperatingError
   */
  async grant(holder: TokenHolder, space: Space, order: GrantBatch): Promise<number> {
    const stood = await this.grants.put(holder, space, order)
    if (stood === order.expects) this.parts.spaceHints.changed(space.meshId, space.spaceId)
    return stood
  }

  async write(
    holder: TokenHolder,
    space: Space,
    entries: readonly Uint8Array[],
  ): Promise<WriteOutcome[] | HttpRefusal> {
    const retryAfterMs = this.rates?.take(shareNameOf(holder), performance.now(), entries.length) ?? 0
    if (retryAfterMs > 0) return { code: 'rate_limited', retryAfterMs }
    const read: (EntryWrite | { readonly status: 'malformed' | 'too_large' })[] = []
    for (const bytes of entries) {
      const entry = await this.parts.authenticator.inTurn(() => this.read(holder, space, bytes))
      if (entry === null) return BUSY
      read.push(entry)
    }
    const writes = read.filter((entry): entry is EntryWrite => !('status' in entry))
    const outcomes = await this.writer.write(writes)
    const byWrite = new Map(writes.map((write, i) => [write, outcomes[i]!]))
    const all = read.map((entry) => ('status' in entry ? entry : byWrite.get(entry)!))
    this.count(all)
    if (outcomes.some((outcome) => outcome.status === 'done' && outcome.isNew))
      this.parts.spaceHints.happened(space.meshId, space.spaceId)
    return all
  }

  private read(holder: TokenHolder, { meshId, spaceId }: Space, bytes: Uint8Array) {
    if (bytes.length > this.limits.entryBytesMax) return { status: 'too_large' } as const
    const entry = readEntry(bytes)
    const isOurs = entry?.meshId === meshId && entry.spaceId === spaceId && entry.author === holder.peerKey
    if (!entry || !isOurs) return { status: 'malformed' } as const
    const { keyHash, revision, isDeleted, keyEpoch } = entry
    const hashes = { hash: toHex(entry.hash), formerHash: toHex(entry.prevHash) }
    return { meshId, spaceId, keyHash, revision, isDeleted, keyEpoch, author: holder.peer, bytes, ...hashes }
  }

  private count(outcomes: readonly WriteOutcome[]): void {
    for (const { status } of outcomes) {
      if (status === 'done') this.counters.written += 1
      else if (status === 'conflict') this.counters.conflicts += 1
      else this.counters.refused += 1
    }
  }
}

export class SpaceLookup {
  private readonly spaces: Spaces
  private readonly meshBytesMax: number

  /** `meshBytesMax`: the limit on a mesh's entries and history. */
  constructor(db: Database, meshBytesMax: number) {
    this.spaces = new Spaces(db)
    this.meshBytesMax = meshBytesMax
  }

  async find(meshId: MeshId, { peer, spaceId }: PeerSpace): Promise<SpaceFacts> {
    const space = await this.spaces.find({ meshId, peer }, spaceId)
    const isFull = (space?.meshBytes ?? 0) >= this.meshBytesMax
    return { spaceId, keepsMessages: space?.keepsMessages === true, isFull }
  }
}

interface SpaceParts {
  readonly databases: { readonly asking: Database; readonly entries: Pipeline }
  readonly authenticator: Authenticator
  readonly spaceHints: SpaceHints
  readonly metrics: Metrics
}

export function openSpaces(
  config: Config,
  { databases, authenticator, spaceHints, metrics }: SpaceParts,
): SpaceRequests {
  const parts = { asking: databases.asking, writing: databases.entries, authenticator, spaceHints }
  const { STATE_WRITES_PER_SECOND: perSecond, STATE_WRITES_BURST: burst } = config
  const requests = new SpaceRequests(parts, {
    entries: {
      entriesMax: config.STATE_ENTRIES_MAX,
      spaceBytesMax: config.STATE_BYTES_MAX,
      meshBytesMax: config.HISTORY_BYTES_MAX,
    },
    entryBytesMax: config.STATE_ENTRY_BYTES_MAX,
    writes: config.LIMITS === 'on' ? { perSecond, burst } : null,
  })
  const { counters } = requests
  metrics.count({
    state_entries_written: ['state entries written, or already stored by an earlier request', () => counters.written],
    state_conflicts: ['state entries refused because of a conflict', () => counters.conflicts],
    state_entries_refused: ['state entries refused for reasons other than a conflict', () => counters.refused],
  })
  return requests
}
