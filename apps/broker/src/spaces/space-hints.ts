/**
 * Notifies followers of a space on this shard of new events on any shard. A notification may be lost or superfluous.
 */
import type { Bus } from '@sealpost/bus'
import type { Append } from '@sealpost/protocol'
import type { HintOf } from '@sealpost/protocol/hints'
import { keptOf } from '@sealpost/queue'
import type { MeshId, SpaceId } from '@sealpost/std'

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

  /** Calls `wake`, sometimes superfluously, when there may be new events. Returns a function that unfollows. */
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

  /** A commit stored these; some of them were recorded. */
  recorded(appends: readonly Append[]): void {
    for (const { meshId, spaceId } of keptOf(appends)) this.happened(meshId, spaceId)
  }

  /** The owner changed the terms, or a member rotated the key: cached values are outdated on all shards. */
  changed(meshId: MeshId, spaceId: SpaceId): void {
    const hint = { type: 'staleSpace', meshId, space: spaceId } as const
    for (const listener of this.listeners) listener(hint)
    this.bus.publish(hint)
  }

  /** Calls `listener` for changes on this shard; the bus reports those of other shards. */
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
