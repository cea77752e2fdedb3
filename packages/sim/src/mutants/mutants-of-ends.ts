/** Planted bugs in how deliveries end without a settle. */
import { readMarking } from '@sealpost/protocol'
import type { Swept } from '@sealpost/queue'
import type { StoredDelivery } from '@sealpost/queue/memory'
import type { MeshId, PeerNo } from '@sealpost/std'
import { WatchedStatements } from '../shard/watched-statements.ts'
import { realParts } from '../world.ts'
import type { Mutant } from './mutants.ts'

const NOTHING: Swept = { expired: 0, dead: 0, forgotten: 0, isRound: true }

class NoSweeps extends WatchedStatements {
  override sweep(): Swept {
    return NOTHING
  }
}

class ExpiredUntraced extends WatchedStatements {
  override sweep(): Swept {
    for (const row of [...this.store.deliveries()]) if (row.expiresAtMs <= this.store.nowMs) this.store.remove(row)
    return super.sweep()
  }
}

class NoReceiptOfDeath extends WatchedStatements {
  override sweep(): Swept {
    const before = new Set(this.store.deliveries())
    const swept = super.sweep()
    for (const row of [...this.store.deliveries()])
      if (!before.has(row) && row.terms && readMarking(row.terms)?.kind === 'receipt') this.store.remove(row)
    return swept
  }
}

class OneFailedAttemptIsEnough extends WatchedStatements {
  override sweep(): Swept {
    for (const row of this.store.deliveries()) if (row.strikes > 0) strikeOut(row)
    return super.sweep()
  }
}

function strikeOut(row: StoredDelivery): void {
  row.strikes = 1_000
  row.firstStrikeAtMs = 0
}

class WaitingReportedLost extends WatchedStatements {
  override findLost(meshId: MeshId, peer: PeerNo, max: number): ReturnType<WatchedStatements['findLost']> {
    const lost = super.findLost(meshId, peer, max)
    const waiting = this.store.find(meshId, peer)!.deliveries.find(({ terms }) => terms === null)
    if (!waiting) return lost
    const sender = this.store.find(meshId, waiting.sender)!.binding.peer
    return [...lost, { id: waiting.id, envelopeId: waiting.envelopeId, sender, reason: 'expired' }]
  }
}

const mutant = (name: string, Statements: typeof WatchedStatements, breaks: RegExp): Mutant => ({
  name,
  breaks,
  parts: { ...realParts, Statements },
})

export const mutantsOfEnds: readonly Mutant[] = [
  mutant('no sweeps', NoSweeps, /^P3/),
  mutant('an expired delivery leaves no dead letter', ExpiredUntraced, /^P[123]/),
  mutant('a dead letter sends no receipt', NoReceiptOfDeath, /^P3: no receipt/),
  mutant('one failed attempt is enough', OneFailedAttemptIsEnough, /^P2: given up too early/),
  mutant('a waiting delivery is reported as lost', WaitingReportedLost, /^P2: reported as expired/),
]
