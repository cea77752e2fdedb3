/**
 * Tracks the homes of meshes, as this shard knows them. Placement is an optimisation: if two shards serve one mesh,
 * they are slower but never wrong, because claims name session epochs.
 */

import type { HintOf } from '@sealpost/protocol/hints'
import type { MeshId, Millis, ShardId } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { LiveSession, PeerState } from '../model.ts'

export interface LiveShard {
  readonly name: string
  readonly shardId: ShardId
  readonly url: string
  /** Certificate of the shard's own key; empty if the shard uses the cluster's key. */
  readonly certificate: Uint8Array
}

export type RedirectTarget = Pick<LiveShard, 'url' | 'certificate'>

export interface Placement {
  readonly self: ShardId
  /** Whether this shard serves every mesh, because clients can't choose it by its address. */
  readonly servesAll: boolean
  /** Whether sessions move when the home of their mesh changes. */
  readonly movesSessions: boolean
  /** The live shards that peers can connect to, including this shard if they can reach it. */
  readonly shards: readonly LiveShard[]
  readonly pins: ReadonlyMap<MeshId, string>
}

/** The maximum number of alternative shards for a peer. Two are seldom unavailable at the same time. */
const ALTERNATIVES_MAX = 3

export class MeshPlacement {
  private placement: Placement | null = null
  private readonly byName = new Map<string, LiveShard>()
  private readonly since = new Map<ShardId, Millis>()
  /** Homes by mesh, until the next change. */
  private readonly known = new Map<MeshId, LiveShard | null>()

  placed(placement: Placement, nowMs: Millis): void {
    this.placement = placement
    this.byName.clear()
    this.known.clear()
    for (const shard of placement.shards) {
      this.byName.set(shard.name, shard)
      if (!this.since.has(shard.shardId)) this.since.set(shard.shardId, nowMs)
    }
    const alive = new Set(placement.shards.map(({ shardId }) => shardId))
    for (const shardId of this.since.keys()) if (!alive.has(shardId)) this.since.delete(shardId)
  }

  get hasOthers(): boolean {
    return this.byName.size > Number(this.isListed)
  }

  /** Whether another shard may be the home of a mesh on this shard. */
  get redirectsHome(): boolean {
    return this.placement?.movesSessions === true && !this.placement.servesAll && this.hasOthers
  }

  /** Returns the home of a mesh; null if it is this shard or unknown. */
  otherHome(meshId: MeshId): LiveShard | null {
    const found = this.known.get(meshId)
    if (found !== undefined) return found
    if (this.known.size >= KNOWN_MAX) this.known.clear()
    const home = this.placement?.servesAll ? null : this.find(meshId, this.byName.keys())
    const other = home && home.shardId !== this.placement!.self ? home : null
    this.known.set(meshId, other)
    return other
  }

  knownSince({ shardId }: LiveShard): Millis {
    return this.since.get(shardId) ?? Infinity
  }

  /** Returns alternative addresses for the mesh: the next home without this shard, then the one without both. */
  alternativesFor(meshId: MeshId): string[] {
    const names = new Set(this.byName.keys())
    for (const { name, shardId } of this.byName.values()) if (shardId === this.placement?.self) names.delete(name)
    const urls: string[] = []
    while (urls.length < ALTERNATIVES_MAX && names.size > 0) {
      const next = this.find(meshId, names)!
      names.delete(next.name)
      urls.push(next.url)
    }
    return urls
  }

  private get isListed(): boolean {
    return this.since.has(this.placement?.self ?? ('' as ShardId))
  }

  private find(meshId: MeshId, names: Iterable<string>): LiveShard | null {
    const name = homeOf(meshId, names, this.placement?.pins.get(meshId))
    return name === undefined ? null : this.byName.get(name)!
  }
}

const KNOWN_MAX = 10_000

/**
 * Returns the name of a mesh's home: `pin` if that shard is alive, otherwise the name with the highest score
 * (rendezvous hashing: a shard that joins or leaves moves only the meshes that it gains or loses). The order of the
 * names does not matter; without names there is no home. The hash need not resist attacks, since placement only saves
 * work: a tenant with many meshes may choose ids that share a home, and a pin separates them.
 */
export function homeOf(meshId: MeshId, shardNames: Iterable<string>, pin?: string): string | undefined {
  const meshHash = absorb(0, meshId)
  let home: string | undefined
  let highest = -1
  for (const name of shardNames) {
    if (name === pin) return name
    const score = mix(absorb(meshHash, name))
    if (score < highest || (score === highest && home !== undefined && home <= name)) continue
    home = name
    highest = score
  }
  return home
}

/** Mixes a string into a MurmurHash3 state (public domain), one block per UTF-16 unit. */
function absorb(seed: number, text: string): number {
  let hash = seed
  for (let at = 0; at < text.length; at++) {
    const block = Math.imul(rotate(Math.imul(text.charCodeAt(at), 0xcc9e2d51), 15), 0x1b873593)
    hash = (Math.imul(rotate(hash ^ block, 13), 5) + 0xe6546b64) | 0
  }
  return hash ^ text.length
}

/** Applies MurmurHash3's finalizer. */
function mix(hash: number): number {
  let mixed = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35)
  return (mixed ^ (mixed >>> 16)) >>> 0
}

function rotate(bits: number, by: number): number {
  return (bits << by) | (bits >>> (32 - by))
}

/** How long an announcement is valid. */
const GOOD_FOR_MS = 30_000
/** The age at which an announcement in use is renewed. */
const RENEW_AFTER_MS = 10_000
/** Minimum time between two announcements to shards that don't know the session. */
const REPEAT_AFTER_MS = 1_000

/**
 * Tracks the announced sessions of other shards. Mail for them is leased on insert, so that their shard need not claim
 * it. If an announcement is outdated, so is the lease's epoch, and the delivery is free to claim.
 */
export class SessionLocations {
  private readonly context: Context

  constructor(context: Context) {
    this.context = context
  }

  /** Returns the epoch for a lease on insert; 0 for no lease. */
  epochOf({ live, remoteSession }: PeerState): number {
    return !live && remoteSession && this.context.nowMs < remoteSession.untilMs ? remoteSession.epoch : 0
  }

  learn({ meshId, peer, epoch, isOn }: HintOf<'serves'>): void {
    const known = this.context.meshes.find(meshId)?.byNo.get(peer)
    if (!known || (known.remoteSession && known.remoteSession.epoch > epoch)) return
    if (isOn) known.remoteSession = { epoch, untilMs: this.context.nowMs + GOOD_FOR_MS }
    else known.remoteSession = null
  }

  /** Announces this session to shards that stored mail without knowing it. */
  announce(live: LiveSession): void {
    this.announceAfter(live, REPEAT_AFTER_MS)
  }

  /** Renews an announcement that another shard uses, before it expires. */
  renew(live: LiveSession): void {
    this.announceAfter(live, RENEW_AFTER_MS)
  }

  ended(live: LiveSession): void {
    if (live.announcement && this.context.nowMs - live.announcement.atMs < GOOD_FOR_MS) this.hint(live, false)
  }

  private announceAfter(live: LiveSession, afterMs: Millis): void {
    const { nowMs, limits } = this.context
    if (!limits.isInsertLeaseOn || live.credit.isFenced) return
    const announced = live.announcement
    if (announced?.epoch === live.epoch && nowMs - announced.atMs < afterMs) return
    live.announcement = { epoch: live.epoch, atMs: nowMs }
    this.hint(live, true)
  }

  private hint({ mesh, peer, epoch }: LiveSession, isOn: boolean): void {
    this.context.effects.hint({ type: 'serves', meshId: mesh.meshId, peer: peer.peer, epoch, isOn })
  }
}
