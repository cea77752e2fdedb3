/**
 * What shards tell each other. Every message is a hint: it may be lost, doubled or late, and costs a delay at most,
 * because each shard looks by itself from time to time at what it would have been told.
 */
import type { Hint } from '@sealpost/protocol/hints'
import type { MeshId, Millis, ShardId } from '@sealpost/std'

export interface BusListener {
  /** What another shard said, of meshes that are followed here or of none. A shard does not hear itself. */
  heard(from: ShardId, hints: readonly Hint[]): void
  /** From now on hints of these meshes come; those before may be lost. Called for each that is followed, and after a cut for all. */
  listening(meshes: readonly MeshId[]): void
}

/** Counted since the start. */
export interface BusCounters {
  /** Handed to the wire, what was said twice in a moment counted once. */
  published: number
  heard: number
  /** Not handed to the wire, since it was away or too many waited. */
  lost: number
  /** Packets that were none, or that came where they do not belong. */
  dropped: number
}

export interface Bus {
  readonly counters: Readonly<BusCounters>
  /** Whether what is published now is sure to leave this shard. */
  readonly isUp: boolean
  /** Within which the other shards' answers to what is published now will mostly have come; 0: there will be none. */
  readonly answerMs: Millis
  /** Goes out within a few milliseconds, with others. */
  publish(hint: Hint): void
  /** Hints of this mesh are heard from soon on. */
  follow(meshId: MeshId): void
  unfollow(meshId: MeshId): void
  /** Each listener hears everything; it must not throw. */
  subscribe(listener: BusListener): void
  /** Sends what waits first. */
  close(): Promise<void>
}
