/** Caches, for one session, whether the spaces that it writes to keep its messages. */
import type { Millis, SpaceId } from '@sealpost/std'

export interface SpaceFacts {
  readonly spaceId: SpaceId
  /** The space exists, this peer belongs to it, and its messages are kept. */
  readonly keepsMessages: boolean
  /** The space has no room for further messages. */
  readonly isFull: boolean
}

/** A change by another shard may stay unseen here for this long. */
const GOOD_FOR_MS: Millis = 15_000
/** With more entries, most would be ids of no space. */
const SPACES_MAX = 2000

export class SpaceCache {
  private readonly spaces = new Map<SpaceId, { facts: SpaceFacts; goodUntilMs: Millis }>()

  find(spaceId: SpaceId, nowMs: Millis): SpaceFacts | undefined {
    const seen = this.spaces.get(spaceId)
    return seen && nowMs < seen.goodUntilMs ? seen.facts : undefined
  }

  learn(facts: SpaceFacts, nowMs: Millis): void {
    if (this.spaces.size >= SPACES_MAX) this.spaces.clear()
    this.spaces.set(facts.spaceId, { facts, goodUntilMs: nowMs + GOOD_FOR_MS })
  }

  doubt(spaceId: SpaceId): void {
    this.spaces.delete(spaceId)
  }
}
