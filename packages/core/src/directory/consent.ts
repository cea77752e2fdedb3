/** Whom a peer takes mail from, as it is asked for each envelope. */
import type { Consent } from '@sealpost/protocol'
import type { PeerNo } from '@sealpost/std'

export class ConsentRule {
  private readonly named: ReadonlySet<PeerNo>
  private readonly areNamedAdmitted: boolean

  constructor(named: Iterable<PeerNo>, areNamedAdmitted: boolean) {
    this.named = new Set(named)
    this.areNamedAdmitted = areNamedAdmitted
  }

  /** By the user that the sender is, or is a device of. */
  admits(sender: PeerNo): boolean {
    return this.named.has(sender) === this.areNamedAdmitted
  }
}

/** Null for the rule of most, who take mail from everybody. A user may always write to itself, and its devices. */
export function ruleOf(owner: PeerNo, { policy, named }: Consent): ConsentRule | null {
  if (policy === 'contacts') return new ConsentRule([owner, ...named], true)
  return named.length === 0 ? null : new ConsentRule(named, false)
}
