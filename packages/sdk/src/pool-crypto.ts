/** What pools need of cryptography beside what groups have, with the real one behind it. */
import {
  changePool,
  endPool,
  foundPool,
  type Pool,
  type PoolStatement,
  readPool,
  type SigningKeys,
} from '@sealpost/identity'
import type { MeshId } from '@sealpost/std'

/** Of one identity in one mesh. */
export interface PoolCrypto {
  /** A pool of one's own, at its first epoch. */
  found(draft: Pick<Pool, 'name' | 'members'>): PoolStatement
  /** The next epoch of a pool of one's own. */
  change(pool: PoolStatement, change: Partial<Pick<Pool, 'name' | 'members'>>): PoolStatement
  /** The statement that ends a pool of one's own. */
  end(pool: PoolStatement): PoolStatement
  /** Null for what is no statement, not signed by its owner, or of another mesh. */
  read(statement: Uint8Array): PoolStatement | null
}

export function sodiumPools(signing: SigningKeys, meshId: MeshId): PoolCrypto {
  return {
    found: (draft) => foundPool(signing, { ...draft, meshId }),
    change: (pool, change) => changePool(signing, pool, change),
    end: (pool) => endPool(signing, pool),
    read: (statement) => {
      const pool = readPool(statement)
      return pool?.meshId === meshId ? pool : null
    },
  }
}
