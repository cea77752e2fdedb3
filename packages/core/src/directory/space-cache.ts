/** The spaces that a session writes messages into: whether they are kept there, and until when that is believed. */
import type { Millis, SpaceId } from '@sealpost/std'

/** A space as it is to one peer. */
export interface SpaceFacts {
  readonly spaceId: SpaceId
  /** It is there, this peer belongs to it, and its messages are kept. */
  readonly keepsMessages: boolean
  /** It has no room for more of them. */
  readonly isFull: boolean
}

/** How long another shard's change may stay unseen here. */
const GOOD_FOR_MS: Millis = 15_000
/** With more, most would be ids that are no space's. */
const SPACES_MAX = 2000

export class SpaceCache {
  private readonly spaces = new Map<SpaceId, { facts: SpaceFacts; goodUntilMs: Millis }>()

  /** Undefined for one that is to be looked up, perhaps once more. */
  find(spaceId: SpaceId, nowMs: Millis): SpaceFacts | undefined {
    const seen = this.spaces.get(spaceId)
    return seen && nowMs < seen.goodUntilMs ? seen.facts : undefined
  }

  learn(facts: SpaceFacts, nowMs: Millis): void {
    if (this.spaces.size >= SPACES_MAX) this.spaces.clear()
    this.spaces.set(facts.spaceId, { facts, goodUntilMs: nowMs + GOOD_FOR_MS })
  }

  /** It is to be read again. */
  doubt(spaceId: SpaceId): void {
    this.spaces.delete(spaceId)
  }
}
