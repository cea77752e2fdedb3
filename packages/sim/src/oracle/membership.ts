/**
 * Tracks consent changes and a revocation: their time, and which shards have received them. Both use separate random
 * sources, like `Ends`.
 */
import type { ConsentReply, RevokedMember } from '@sealpost/core'
import { type Append, type Consent, type FrameOf, type Member, OPEN } from '@sealpost/protocol'
import type { MemoryDatabase } from '@sealpost/queue/memory'
import { type MeshId, type PeerKey, type PeerNo, seededRandom } from '@sealpost/std'
import type { Oracle } from './oracle.ts'

const CONSENT_SALT = 0xc0a5e
const CHANGES_MAX = 5

/** A change of the first peer's consent for the second, at a fraction of the fault period. */
interface ConsentChange {
  readonly share: number
  readonly verdict: 'blocked' | 'forgotten'
}

export class Consents {
  readonly changes: readonly ConsentChange[]
  private readonly stored = new Map<string, Consent>()

  constructor(seed: number) {
    const random = seededRandom(seed ^ CONSENT_SALT)
    const count = random.chance(0.3) ? 1 + random.below(CHANGES_MAX) : 0
    this.changes = Array.from({ length: count }, (_, i) => ({
      share: random.next(),
      verdict: i % 2 === 0 ? ('blocked' as const) : ('forgotten' as const),
    }))
  }

  change(
    store: MemoryDatabase,
    { meshId, peer }: { meshId: MeshId; peer: PeerNo },
    { changes }: Pick<FrameOf<'consent'>, 'changes'>,
  ): ConsentReply {
    const former = this.of(meshId, peer)
    const named = new Map(former.named.map((no) => [no, store.find(meshId, no)!.binding.peer]))
    for (const { peer: key, verdict } of changes) {
      const no = store.findByKey(meshId, key)!.peer
      if (verdict === 'blocked') named.set(no, key)
      else named.delete(no)
    }
    const consent: Consent = { policy: 'open', named: [...named.keys()], version: former.version + 1 }
    this.stored.set(meshId + peer, consent)
    const peers = [...named.values()].map((key) => ({ peer: key, verdict: 'blocked' as const }))
    return { consent, outcome: 'done', peers, unknown: [] }
  }

  of(meshId: MeshId, peer: PeerNo): Consent {
    return this.stored.get(meshId + peer) ?? OPEN
  }
}

export class HeardConsents {
  private readonly heard = new Map<string, Consent>()

  heardOf(meshId: MeshId, peer: PeerNo, consent: Consent): void {
    const key = meshId + peer
    if (consent.version >= (this.heard.get(key)?.version ?? 0)) this.heard.set(key, consent)
  }

  heardOfMembers(members: readonly Member[]): void {
    for (const { meshId, peer, consent } of members) if (consent) this.heardOf(meshId, peer, consent)
  }

  bars({ meshId, sender, recipient }: Append): boolean {
    return this.heard.get(meshId + recipient)?.named.includes(sender) ?? false
  }
}

const REVOCATION_SALT = 0x4e70cd

interface Way {
  readonly meshId: MeshId
  readonly from: PeerKey
  readonly to: PeerKey
}

/** Revokes a peer of the first mesh in some worlds. */
export class Revocations {
  /** The fraction of the fault period after which the peer is revoked; null for no revocation. */
  readonly share: number | null
  readonly leaver: RevokedMember
  isDone = false
  private readonly heard = new Set<object>()

  constructor(seed: number, leaver: RevokedMember) {
    const random = seededRandom(seed ^ REVOCATION_SALT)
    this.share = random.chance(0.2) ? random.next() : null
    this.leaver = leaver
  }

  commit(store: MemoryDatabase, oracle: Oracle): RevokedMember[] {
    store.revokeMember(this.leaver.meshId, this.leaver.peer)
    if (!this.isDone) oracle.revoked()
    this.isDone = true
    return [this.leaver]
  }

  heardBy(shard: object): void {
    this.heard.add(shard)
  }

  isHeardBy(shard: object): boolean {
    return this.heard.has(shard)
  }

  isLeaver({ meshId, peerKey }: Pick<RevokedMember, 'meshId' | 'peerKey'>): boolean {
    return this.share !== null && meshId === this.leaver.meshId && peerKey === this.leaver.peerKey
  }

  isConcerned({ meshId, from, to }: Way): boolean {
    return this.isLeaver({ meshId, peerKey: from }) || this.isLeaver({ meshId, peerKey: to })
  }

  isOut(meshId: MeshId, peer: PeerNo): boolean {
    return this.isDone && meshId === this.leaver.meshId && peer === this.leaver.peer
  }
}
