/**
 * A pool: a name and a list of members, of whom one takes each message. Its owner signs it as the owner of a group does.
 * The id is as long as a peer's key, because it is addressed like one; being a hash it is nobody's key.
 *
 * Bytes: as `member-list.ts` has them. Vector: packages/protocol/vectors/pool.json.
 */
import { GROUP_EPOCH_LAST, type MeshId, type PeerKey, type PoolId } from '@sealpost/std'
import type { SigningKeys } from '../keys/keys.ts'
import {
  type MemberListFields,
  type MemberListKind,
  memberListIdOf,
  newNonce,
  readMemberList,
  signMemberList,
} from './group.ts'

/** 1 to 64 members, and none exactly in the statement that ends it. */
export interface PoolFields extends Omit<MemberListFields, 'id'> {
  readonly poolId: PoolId
}

/** A pool and the bytes that prove it. */
export interface PoolStatement extends PoolFields {
  readonly bytes: Uint8Array
}

const KIND: MemberListKind = {
  context: 'sealpost-pool/1',
  idContext: 'sealpost-pool-id/1',
  idBytes: 32,
  membersMax: 64,
  lastEpoch: GROUP_EPOCH_LAST,
}

/** A new pool, at its first epoch. @throws AssertionError unless name and members are as `Pool` says */
export function createPool(owner: SigningKeys, draft: Pick<PoolFields, 'meshId' | 'name' | 'members'>): PoolStatement {
  const nonce = newNonce()
  const poolId = poolIdOf(draft.meshId, owner.publicKey, nonce)
  return signPool(owner, { ...draft, poolId, owner: owner.publicKey, nonce, epoch: 1 })
}

/** The next epoch of a pool, with another name or other members. */
export function changePool(
  owner: SigningKeys,
  { bytes: _, ...pool }: PoolStatement,
  change: Partial<Pick<PoolFields, 'name' | 'members'>>,
): PoolStatement {
  return signPool(owner, { ...pool, ...change, epoch: pool.epoch + 1 })
}

/** The statement that ends a pool. */
export function endPool(owner: SigningKeys, { bytes: _, ...pool }: PoolStatement): PoolStatement {
  return signPool(owner, { ...pool, members: [], epoch: GROUP_EPOCH_LAST })
}

export const isPoolEnded = ({ epoch }: Pick<PoolFields, 'epoch'>): boolean => epoch === GROUP_EPOCH_LAST

/** Signs what it is given, members in their order: for test vectors. */
export function signPool(owner: SigningKeys, { poolId, ...pool }: PoolFields): PoolStatement {
  return statementOf(signMemberList(KIND, owner, { ...pool, id: poolId }))
}

/** A statement from its bytes; null unless every field is as `Pool` says and its owner signed it. Never throws. */
export function readPool(bytes: Uint8Array): PoolStatement | null {
  const roster = readMemberList(KIND, bytes)
  return roster && statementOf(roster)
}

export const poolIdOf = (meshId: MeshId, owner: PeerKey, nonce: string): PoolId =>
  memberListIdOf(KIND, meshId, owner, nonce) as PoolId

const statementOf = ({ id, ...roster }: MemberListFields & { bytes: Uint8Array }): PoolStatement => ({
  ...roster,
  poolId: id as PoolId,
})
