/**
 * A pool: a name and a list of members, of whom one takes each message. Its owner signs it as the owner of a group does.
 * The id is as long as a peer's key, because it is addressed like one; being a hash it is nobody's key.
 *
 * Bytes: as `roster-statement.ts` has them. Vector: packages/protocol/vectors/pool.json.
 */
import { GROUP_EPOCH_LAST, type MeshId, type PeerKey, type PoolId } from '@sealpost/std'
import type { SigningKeys } from './keys.ts'
import { newNonce, type Roster, type RosterKind, readRoster, rosterIdOf, signRoster } from './roster-statement.ts'

/** 1 to 64 members, and none exactly in the statement that ends it. */
export interface Pool extends Omit<Roster, 'id'> {
  readonly poolId: PoolId
}

/** A pool and the bytes that prove it. */
export interface PoolStatement extends Pool {
  readonly bytes: Uint8Array
}

const KIND: RosterKind = {
  context: 'sealpost-pool/1',
  idContext: 'sealpost-pool-id/1',
  idBytes: 32,
  membersMax: 64,
  lastEpoch: GROUP_EPOCH_LAST,
}

/** A new pool, at its first epoch. @throws AssertionError unless name and members are as `Pool` says */
export function foundPool(owner: SigningKeys, draft: Pick<Pool, 'meshId' | 'name' | 'members'>): PoolStatement {
  const nonce = newNonce()
  const poolId = poolIdOf(draft.meshId, owner.publicKey, nonce)
  return signPool(owner, { ...draft, poolId, owner: owner.publicKey, nonce, epoch: 1 })
}

/** The next epoch of a pool, with another name or other members. */
export function changePool(
  owner: SigningKeys,
  { bytes: _, ...pool }: PoolStatement,
  change: Partial<Pick<Pool, 'name' | 'members'>>,
): PoolStatement {
  return signPool(owner, { ...pool, ...change, epoch: pool.epoch + 1 })
}

/** The statement that ends a pool. */
export function endPool(owner: SigningKeys, { bytes: _, ...pool }: PoolStatement): PoolStatement {
  return signPool(owner, { ...pool, members: [], epoch: GROUP_EPOCH_LAST })
}

export const isPoolOver = ({ epoch }: Pick<Pool, 'epoch'>): boolean => epoch === GROUP_EPOCH_LAST

/** Signs what it is given, members in their order: for test vectors. */
export function signPool(owner: SigningKeys, { poolId, ...pool }: Pool): PoolStatement {
  return statementOf(signRoster(KIND, owner, { ...pool, id: poolId }))
}

/** A statement from its bytes; null unless every field is as `Pool` says and its owner signed it. Never throws. */
export function readPool(bytes: Uint8Array): PoolStatement | null {
  const roster = readRoster(KIND, bytes)
  return roster && statementOf(roster)
}

export const poolIdOf = (meshId: MeshId, owner: PeerKey, nonce: string): PoolId =>
  rosterIdOf(KIND, meshId, owner, nonce) as PoolId

const statementOf = ({ id, ...roster }: Roster & { bytes: Uint8Array }): PoolStatement => ({
  ...roster,
  poolId: id as PoolId,
})
