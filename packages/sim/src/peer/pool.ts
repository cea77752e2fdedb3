/** The pool of each mesh of a world: all of its peers, by an unsigned statement. */
import type { PoolCrypto } from '@sealpost/sdk'
import type { MeshId, PeerKey, PoolId } from '@sealpost/std'

export const POOL = 'f0'.repeat(32) as PoolId

const unused = (): never => {
  throw new Error('no peer of a world creates or changes a pool')
}
const encoder = new TextEncoder()
const decoder = new TextDecoder()

export function poolStatementOf(meshId: MeshId, members: readonly PeerKey[]): Uint8Array {
  const roster = { meshId, poolId: POOL, epoch: 1, owner: members[0], nonce: '', name: 'pool', members }
  return encoder.encode(JSON.stringify(roster))
}

export function vaultPools(meshId: MeshId): PoolCrypto {
  return {
    create: unused,
    change: unused,
    end: unused,
    read: (bytes) => {
      const pool = JSON.parse(decoder.decode(bytes))
      return pool.meshId === meshId ? { ...pool, bytes } : null
    },
  }
}
