/** Tells those who follow a space here that something has happened in it, on whichever shard. It may be lost, or too much. */
import type { Bus } from '@sealpost/bus'
import type { Append } from '@sealpost/protocol'
import type { HintOf } from '@sealpost/protocol/hints'
import { keptOf } from '@sealpost/queue'
import type { MeshId, SpaceId } from '@sealpost/std'

type Topics = Pick<Bus, 'publish' | 'subscribe' | 'follow' | 'unfollow'>

export class SpaceNews {
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

  /** `wake` is called, here or there once too often, when there may be something new. Answers what ends it. */
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

  /** Something was committed here. */
  happened(meshId: MeshId, spaceId: SpaceId): void {
    this.wake(meshId, spaceId)
    this.bus.publish({ type: 'happened', meshId, space: spaceId })
  }

  /** A commit was done, with these in it. */
  said(appends: readonly Append[]): void {
    for (const { meshId, spaceId } of keptOf(appends)) this.happened(meshId, spaceId)
  }

  /** Its owner said what the space is, or its key was turned: what was read of it before is old, here and there. */
  changed(meshId: MeshId, spaceId: SpaceId): void {
    const hint = { type: 'staleSpace', meshId, space: spaceId } as const
    for (const listener of this.listeners) listener(hint)
    this.bus.publish(hint)
  }

  /** Hears of what was changed here; of other shards' changes the bus tells. */
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
