/** Implements pools without secrets, like the groups in `fake-groups.ts`. */
import type { PoolStatement } from '@sealpost/identity'
import { GROUP_EPOCH_LAST, type MeshId, type PeerKey, type PoolId, toHex } from '@sealpost/std'
import type { PoolCrypto } from '../ports.ts'

const encoder = new TextEncoder()
const decoder = new TextDecoder()
const NONE = new Uint8Array()

/** Returns a statement that is trusted for the key that it names. */
export function fakePoolStatement(pool: Omit<PoolStatement, 'bytes'>): PoolStatement {
  const whole = { ...pool, members: [...new Set(pool.members)].sort() }
  return { ...whole, bytes: encoder.encode(JSON.stringify(whole)) }
}

/** `random` returns the requested number of bytes. */
export function fakePools(
  { meshId, peerKey }: { meshId: MeshId; peerKey: PeerKey },
  random: (length: number) => Uint8Array,
): PoolCrypto {
  const written = ({ bytes: _, ...pool }: PoolStatement) => fakePoolStatement(pool)
  return {
    create: ({ name, members }) => {
      const [nonce, poolId] = [toHex(random(16)), toHex(random(32)) as PoolId]
      return written({ meshId, poolId, epoch: 1, owner: peerKey, nonce, name, members, bytes: NONE })
    },
    change: (pool, change) => written({ ...pool, ...change, epoch: pool.epoch + 1 }),
    end: (pool) => written({ ...pool, members: [], epoch: GROUP_EPOCH_LAST }),
    read: (bytes) => {
      const pool = parsed(bytes)
      return pool?.meshId === meshId ? { ...pool, bytes } : null
    },
  }
}

function parsed(bytes: Uint8Array): Omit<PoolStatement, 'bytes'> | null {
  try {
    return JSON.parse(decoder.decode(bytes))
  } catch {
    return null
  }
}
