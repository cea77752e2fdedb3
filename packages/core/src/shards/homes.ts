/**
 * Where meshes are at home, as far as this shard knows. Only an optimisation: two shards that serve one mesh at once are
 * slower, never wrong, because every claim names the epoch of a session.
 */

import type { HintOf } from '@sealpost/protocol/hints'
import type { MeshId, Millis, ShardId } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { LiveSession, PeerState } from '../model.ts'

/** A shard that peers can dial. */
export interface LiveShard {
  readonly name: string
  readonly shardId: ShardId
  readonly url: string
  /** Of its own key; empty when it has that of the cluster. */
  readonly certificate: Uint8Array
}

/** Where a peer is sent. */
export type RedirectTarget = Pick<LiveShard, 'url' | 'certificate'>

export interface Placement {
  readonly self: ShardId
  /** This shard serves every mesh, at home here or not: who dials it did not choose it. */
  readonly servesAll: boolean
  /** Sessions go where the home of their mesh is when that has changed. */
  readonly movesSessions: boolean
  /** Those that are alive and can be dialled, this one among them if it is so. */
  readonly shards: readonly LiveShard[]
  readonly pins: ReadonlyMap<MeshId, string>
}

/** Whom a peer hears of beside the shard that serves it: more than one of them is seldom away at a time. */
const ALTERNATIVES_MAX = 3

export class MeshPlacement {
  private placement: Placement | null = null
  private readonly byName = new Map<string, LiveShard>()
  /** Since when each process is known. */
  private readonly since = new Map<ShardId, Millis>()
  /** Of meshes that were asked about since the last change. */
  private readonly known = new Map<MeshId, LiveShard | null>()

  /** Takes what is true from now on. */
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

  /** Whether a session may be at home elsewhere than it is. */
  get redirectsHome(): boolean {
    return this.placement?.movesSessions === true && !this.placement.servesAll && this.hasOthers
  }

  /** The home of a mesh, if that is another shard; null: it is at home here, or nothing is known. */
  otherHome(meshId: MeshId): LiveShard | null {
    const found = this.known.get(meshId)
    if (found !== undefined) return found
    if (this.known.size >= KNOWN_MAX) this.known.clear()
    const home = this.placement?.servesAll ? null : this.find(meshId, this.byName.keys())
    const other = home && home.shardId !== this.placement!.self ? home : null
    this.known.set(meshId, other)
    return other
  }

  /** Since when this process is known here. */
  knownSince({ shardId }: LiveShard): Millis {
    return this.since.get(shardId) ?? Infinity
  }

  /** Where else the mesh can be served: the first would be its home without this shard, the second without that one. */
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
 * The name of the shard where the peers of a mesh should be: `pin` if that shard lives, else the name that scores highest
 * with the mesh (rendezvous hashing: a shard that comes or goes moves only the meshes it gains or loses). The order
 * of the names does not matter. Nothing if there are no names. Placement only saves work, so its hash withstands no attack:
 * who makes many meshes may choose ids that share a home, and a pin takes them apart.
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

/** The steps of MurmurHash3 (public domain), a block for each UTF-16 unit: `Math.imul` is the same on every platform. */
function absorb(seed: number, text: string): number {
  let hash = seed
  for (let at = 0; at < text.length; at++) {
    const block = Math.imul(rotate(Math.imul(text.charCodeAt(at), 0xcc9e2d51), 15), 0x1b873593)
    hash = (Math.imul(rotate(hash ^ block, 13), 5) + 0xe6546b64) | 0
  }
  return hash ^ text.length
}

/** Its finalizer: each bit of the result depends on every bit of the hash. */
function mix(hash: number): number {
  let mixed = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35)
  return (mixed ^ (mixed >>> 16)) >>> 0
}

function rotate(bits: number, by: number): number {
  return (bits << by) | (bits >>> (32 - by))
}

/**
 * Which shard serves whom, as shards tell each other: to a peer of which another one has said so, mail is leased at birth,
 * and that shard collects it without a claim. What is said may be wrong or old; then the lease is under an epoch that has
 * passed, and the delivery as free as without one.
 */

/** What was said counts for so long, */
const GOOD_FOR_MS = 30_000
/** is sent again to the peers that still use it, */
const RENEW_AFTER_MS = 10_000
/** and at most so often to who does not. */
const REPEAT_AFTER_MS = 1_000

export class SessionLocations {
  private readonly context: Context

  constructor(context: Context) {
    this.context = context
  }

  /** The epoch to lease under; 0: none. */
  epochOf({ live, remoteSession }: PeerState): number {
    return !live && remoteSession && this.context.nowMs < remoteSession.untilMs ? remoteSession.epoch : 0
  }

  learn({ meshId, peer, epoch, isOn }: HintOf<'serves'>): void {
    const known = this.context.meshes.find(meshId)?.byNo.get(peer)
    if (!known || (known.remoteSession && known.remoteSession.epoch > epoch)) return
    if (isOn) known.remoteSession = { epoch, untilMs: this.context.nowMs + GOOD_FOR_MS }
    else known.remoteSession = null
  }

  /** Someone stored mail for this session and does not know that it is here. */
  announce(live: LiveSession): void {
    this.announceAfter(live, REPEAT_AFTER_MS)
  }

  /** Someone knows. */
  renew(live: LiveSession): void {
    this.announceAfter(live, RENEW_AFTER_MS)
  }

  ended(live: LiveSession): void {
    if (live.announcement && this.context.nowMs - live.announcement.atMs < GOOD_FOR_MS) this.hint(live, false)
  }

  private announceAfter(live: LiveSession, afterMs: Millis): void {
    const { nowMs, limits } = this.context
    if (!limits.isInsertLeaseOn || live.credit.isFenced) return
    const said = live.announcement
    if (said?.epoch === live.epoch && nowMs - said.atMs < afterMs) return
    live.announcement = { epoch: live.epoch, atMs: nowMs }
    this.hint(live, true)
  }

  private hint({ mesh, peer, epoch }: LiveSession, isOn: boolean): void {
    this.context.effects.hint({ type: 'serves', meshId: mesh.meshId, peer: peer.peer, epoch, isOn })
  }
}
