/** The pools of the mesh, read when somebody asks. */
import type { PoolStatement } from '@sealpost/identity'
import type { PoolId } from '@sealpost/std'
import type { PeerEvent } from './events.ts'
import type { PoolCrypto } from './pool-crypto.ts'
import { RosterBook } from './roster-book.ts'

export interface PoolBookPorts {
  readonly crypto: Pick<PoolCrypto, 'read'>
  readonly announce: (event: PeerEvent) => void
  /** Asks for the statements behind one. Answer: `listed`, or `close`. */
  readonly ask: (after: PoolId) => void
}

export class PoolBook extends RosterBook<PoolId, PoolStatement> {
  constructor({ crypto, announce, ask }: PoolBookPorts) {
    super({
      read: (bytes) => crypto.read(bytes),
      idOf: ({ poolId }) => poolId,
      beforeAll: '0'.repeat(64) as PoolId,
      ask,
      tampered: (pool, reason) => announce({ type: 'pool_tamper', pool, reason }),
    })
  }
}
