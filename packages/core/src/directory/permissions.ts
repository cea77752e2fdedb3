/**
 * Defines the permissions that the router checks for each envelope: whose mail a peer accepts, and which spaces record
 * it.
 */
import type { Consent } from '@sealpost/protocol'
import type { Millis, PeerNo, SpaceId } from '@sealpost/std'

/** Decides whose mail a peer accepts. */
export class ConsentRule {
  private readonly named: ReadonlySet<PeerNo>
  private readonly areNamedAdmitted: boolean

  constructor(named: Iterable<PeerNo>, areNamedAdmitted: boolean) {
    this.named = new Set(named)
    this.areNamedAdmitted = areNamedAdmitted
  }

  /** `sender`: the sending user. */
  admits(sender: PeerNo): boolean {
    return this.named.has(sender) === this.areNamedAdmitted
  }
}

/** Returns null for the common rule, mail from everybody. A user always accepts mail from itself and its devices. */
export function ruleOf(owner: PeerNo, { policy, named }: Consent): ConsentRule | null {
  if (policy === 'contacts') return new ConsentRule([owner, ...named], true)
  return named.length === 0 ? null : new ConsentRule(named, false)
}

export interface SpaceFacts {
  readonly spaceId: SpaceId
  /** Whether the space records this peer's messages. */
  readonly keepsMessages: boolean
  readonly isFull: boolean
}

/** The time after which a cached entry is looked up again, because another shard may have changed it. */
const GOOD_FOR_MS: Millis = 15_000
/** The maximum number of cached entries, most of which are then unknown spaces. The cache is cleared when full. */
const SPACES_MAX = 2000

/** Caches, for one session, whether the spaces that it writes to record its messages. */
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
