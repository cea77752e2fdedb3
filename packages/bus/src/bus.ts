/**
 * What shards tell each other. Every message is a hint: it may be lost, doubled or late, and costs a delay at most,
 * because each session looks into its queue by itself from time to time.
 */
import type { MeshId, PeerNo } from '@sealpost/std'

/** "Something may wait for this peer." */
export interface Hint {
  readonly meshId: MeshId
  readonly peer: PeerNo
}

export interface Bus {
  publish(hint: Hint): void
  /** Hints of other shards; a shard does not hear its own. */
  subscribe(heard: (hint: Hint) => void): void
  close(): Promise<void>
}

export const hintOf = (meshId: MeshId, peer: PeerNo): Hint => ({ meshId, peer })
