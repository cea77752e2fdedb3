/**
 * Where meshes are at home, as far as this shard knows. Only an optimisation: two shards that serve one mesh at once are
 * slower, never wrong, because every claim names the epoch of a session.
 */
import type { MeshId, Millis, ShardId } from '@sealpost/std'
import { homeOf } from './placement.ts'

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
