/** What a command asks of its profile's peer about pools. Everything travels as JSON. */
import type { EnvelopeId, Peer, PeerKey, PoolId, Priority } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import { changeRoster, factsOf, type RosterChange, type RosterFacts } from './roster-facts.ts'

export type PoolFacts = RosterFacts<PoolId>

export interface PoolChange extends RosterChange {
  readonly pool: PoolId
}

export interface PoolSendQuestion {
  readonly pool: PoolId
  readonly bodyBase64: string
  readonly priority: Priority
  /** 0: the broker's default. */
  readonly ttlSeconds: number
}

export interface PoolCalls {
  /** All of the mesh. */
  pools(question: null): Promise<readonly PoolFacts[]>
  createPool(question: { name: string; members: readonly PeerKey[] }): Promise<PoolFacts>
  changePool(question: PoolChange): Promise<PoolFacts>
  deletePool(question: { pool: PoolId }): Promise<null>
  /** Answers when the broker has stored it. */
  sendToPool(question: PoolSendQuestion): Promise<{ envelopeId: EnvelopeId; isDuplicate: boolean }>
}

export function poolCallsOf({ pools }: Peer): PoolCalls {
  return {
    pools: async () => (await pools.list()).map(factsOf),
    createPool: async ({ name, members }) => factsOf(await pools.createPool(name, members)),
    changePool: async ({ pool, ...change }) => changeRoster(await pools.find(pool), change),
    deletePool: async ({ pool }) => {
      await (await pools.find(pool)).delete()
      return null
    },
    sendToPool: async ({ pool: id, bodyBase64, priority, ttlSeconds }) => {
      const pool = await pools.find(id)
      const { envelopeId, isDuplicate } = await pool.send(Buffer.from(bodyBase64, 'base64'), { priority, ttlSeconds })
      return { envelopeId, isDuplicate }
    },
  }
}

/**
 * The one of these that a word of the command line means: a name, or an id of 64 hex digits.
 * @throws OperatingError `unknown_pool`, `pool_ambiguous`
 */
export function poolNamed<P extends Pick<PoolFacts, 'id' | 'name'>>(pools: readonly P[], word: string): P {
  const [pool, ...others] = pools.filter(({ id, name }) => id === word || name === word)
  if (!pool) throw new OperatingError('unknown_pool', 'There is no pool of this name or id in this mesh.')
  if (others.length === 0) return pool
  throw new OperatingError('pool_ambiguous', 'Several pools have this name: say its id, which "pool list" tells.')
}
