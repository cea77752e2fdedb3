/**
 * One peer of the first mesh is revoked in some worlds, by another one. This is what really happened to it, as the database
 * has it, and which shards have heard of it. It draws from a source of its own, as `Ends` does.
 */
import type { RevokedMember } from '@sealpost/core'
import type { MemoryStore } from '@sealpost/queue/memory'
import { type MeshId, type PeerKey, type PeerNo, seededRandom } from '@sealpost/std'
import type { Oracle } from './oracle.ts'

const SALT = 0x4e70cd

interface Way {
  readonly meshId: MeshId
  readonly from: PeerKey
  readonly to: PeerKey
}

export class Revocations {
  /** The share of the time of faults after which it is revoked; null: in this world nobody is. */
  readonly share: number | null
  readonly leaver: RevokedMember
  /** The statement was applied. */
  isDone = false
  private readonly heard = new Set<object>()

  constructor(seed: number, leaver: RevokedMember) {
    const random = seededRandom(seed ^ SALT)
    this.share = random.chance(0.2) ? random.next() : null
    this.leaver = leaver
  }

  /** One statement. */
  commit(store: MemoryStore, oracle: Oracle): RevokedMember[] {
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

  /** What is on this way may come to its end by the revocation. */
  isConcerned({ meshId, from, to }: Way): boolean {
    return this.isLeaver({ meshId, peerKey: from }) || this.isLeaver({ meshId, peerKey: to })
  }

  /** Whether it is the one who was revoked, and is so by now. */
  isOut(meshId: MeshId, peer: PeerNo): boolean {
    return this.isDone && meshId === this.leaver.meshId && peer === this.leaver.peer
  }
}
