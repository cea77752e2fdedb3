/**
 * In some worlds one peer of the first mesh is revoked by another one. This is the state in the database, and the
 * shards that have received it. It has a random source of its own, like `Ends`.
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
  /** The fraction of the fault period after which it is revoked; null: no revocation in this world. */
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

  /** Returns whether the revocation may affect messages between these peers. */
  isConcerned({ meshId, from, to }: Way): boolean {
    return this.isLeaver({ meshId, peerKey: from }) || this.isLeaver({ meshId, peerKey: to })
  }

  /** Returns whether this peer has been revoked. */
  isOut(meshId: MeshId, peer: PeerNo): boolean {
    return this.isDone && meshId === this.leaver.meshId && peer === this.leaver.peer
  }
}
