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

  /** `sender`: the sender, or the user that it acts for. */
  admits(sender: PeerNo): boolean {
    return this.named.has(sender) === this.areNamedAdmitted
  }
}

/** Returns null for the common rule: mail from everybody. A user may always write to itself and to its devices. */
export function ruleOf(owner: PeerNo, { policy, named }: Consent): ConsentRule | null {
  if (policy === 'contacts') return new ConsentRule([owner, ...named], true)
  return named.length === 0 ? null : new ConsentRule(named, false)
}

export interface SpaceFacts {
  readonly spaceId: SpaceId
  /** Whether the space exists, this peer belongs to it, and it records messages. */
  readonly keepsMessages: boolean
  /** Whether the space has no room for more messages. */
  readonly isFull: boolean
}

/** Maximum time until this shard notices a change that another shard made. */
const GOOD_FOR_MS: Millis = 15_000
/**
 * Maximum number of cached entries; the cache is cleared when full. Most entries would then be ids of unknown spaces.
 */
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
