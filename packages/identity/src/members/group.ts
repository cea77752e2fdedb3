/**
 * Creates and reads the statements of groups and pools. A group is a name and a list of members, signed by its owner.
 * Each change is a new statement with a higher epoch. The id is derived from the owner's key, so nobody else's
 * statement can replace it, even if a broker hands one out. The last statement has no members and the highest possible
 * epoch; it ends the group permanently.
 *
 * Bytes: as `signMemberList` writes them. Vector: packages/protocol/vectors/group.json.
 */
import {
  assert,
  fromHex,
  GROUP_EPOCH_LAST,
  type GroupId,
  isHex,
  type MeshId,
  type PeerKey,
  type PoolId,
  toHex,
} from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u16, u32, utf8 } from '../byte-fields.ts'
import { SIGNATURE_BYTES, type SigningKeys, sign, verify } from '../keys/keys.ts'
import { hash256 } from '../sodium.ts'

/**
 * The fields that groups and pools have in common: a name and a list of members, signed by their owner. They differ in
 * the signed and hashed contexts, the length of the id, and the maximum number of members.
 *
 * Bytes: the fields below, then the signature over the context and the fields: lp(mesh id), lp(id), u32 epoch,
 * lp(owner), lp(nonce), lp(name), u16 number of members, then 32 bytes for each member, ascending.
 */
export interface MemberListFields {
  readonly meshId: MeshId
  readonly id: string
  /** Counts from 1. A higher epoch replaces a lower one. */
  readonly epoch: number
  readonly owner: PeerKey
  /** 32 hex digits. */
  readonly nonce: string
  /** 1 to 64 characters of printable ASCII. */
  readonly name: string
  /** Ascending, and empty only in the last statement. The owner need not be a member. */
  readonly members: readonly PeerKey[]
}

export interface MemberListKind {
  readonly context: string
  readonly idContext: string
  readonly idBytes: number
  readonly membersMax: number
  /** The epoch of the statement that ends the group or pool. */
  readonly lastEpoch: number
}

/** The maximum of a database `integer`. */
const EPOCH_MAX = 2 ** 31 - 1
const NONCE_BYTES = 16
const NAME_MAX = 64

/** Returns a random nonce for all epochs of a list. */
export const newNonce = (): string => toHex(crypto.getRandomValues(new Uint8Array(NONCE_BYTES)))

export function memberListIdOf(kind: MemberListKind, meshId: MeshId, owner: PeerKey, nonce: string): string {
  const text = concatBytes([context(kind.idContext), fromHex(meshId), fromHex(owner), fromHex(nonce)])
  return toHex(hash256(text).subarray(0, kind.idBytes))
}

/**
 * Signs a member list. Sorts the members and removes duplicates. @throws AssertionError unless the list is well formed
 */
export function signMemberList<R extends MemberListFields>(
  kind: MemberListKind,
  owner: SigningKeys,
  roster: R,
): R & { bytes: Uint8Array } {
  const whole = { ...roster, members: [...new Set(roster.members)].sort() }
  assert(isWellFormed(kind, whole), 'a roster has a name, members, an epoch and the id of its owner')
  const fields = fieldBytes(whole)
  return { ...whole, bytes: concatBytes([fields, sign(owner, signedBytes(kind, fields))]) }
}

/** Reads a member list. Returns null unless every field is valid and the owner signed it. Never throws. */
export function readMemberList(
  kind: MemberListKind,
  bytes: Uint8Array,
): (MemberListFields & { bytes: Uint8Array }) | null {
  const roster = memberListFields(kind, bytes)
  if (!roster) return null
  const fields = bytes.subarray(0, bytes.length - SIGNATURE_BYTES)
  if (!verify(roster.owner, signedBytes(kind, fields), bytes.subarray(fields.length))) return null
  return { ...roster, bytes: bytes.slice() }
}

/** Reads the fields without checking the signature. Returns null unless every field is valid. Never throws. */
function memberListFields(kind: MemberListKind, bytes: Uint8Array): MemberListFields | null {
  return bytes.length > SIGNATURE_BYTES ? fieldsOf(kind, bytes.subarray(0, bytes.length - SIGNATURE_BYTES)) : null
}

export const isMemberListName = (name: string): boolean => /^[ -~]{1,64}$/.test(name)

function fieldsOf(kind: MemberListKind, fields: Uint8Array): MemberListFields | null {
  const reader = new FieldReader(fields)
  const roster = {
    meshId: toHex(reader.prefixed()) as MeshId,
    id: toHex(reader.prefixed()),
    epoch: reader.u32(),
    owner: toHex(reader.prefixed()) as PeerKey,
    nonce: toHex(reader.prefixed()),
    name: String.fromCharCode(...reader.prefixed().subarray(0, NAME_MAX + 1)),
    members: readMembers(reader, kind.membersMax),
  }
  return reader.isAtEnd && isWellFormed(kind, roster) ? roster : null
}

function readMembers(reader: FieldReader, max: number): PeerKey[] {
  // Read one member more than allowed, so that a list that is too long is refused.
  const count = Math.min(reader.u16(), max + 1)
  return Array.from({ length: count }, () => toHex(reader.take(32)) as PeerKey)
}

function isWellFormed(
  kind: MemberListKind,
  { meshId, id, epoch, owner, nonce, name, members }: MemberListFields,
): boolean {
  return (
    isHex(meshId, 16) &&
    isHex(owner, 32) &&
    isHex(nonce, NONCE_BYTES) &&
    memberListIdOf(kind, meshId, owner, nonce) === id &&
    isUnsigned(epoch, EPOCH_MAX) &&
    epoch > 0 &&
    isMemberListName(name) &&
    members.length > 0 === (epoch !== kind.lastEpoch) &&
    members.length <= kind.membersMax &&
    members.every((member, i) => isHex(member, 32) && (i === 0 || members[i - 1]! < member))
  )
}

function signedBytes(kind: MemberListKind, fields: Uint8Array): Uint8Array {
  return concatBytes([context(kind.context), fields])
}

function fieldBytes({ meshId, id, epoch, owner, nonce, name, members }: MemberListFields): Uint8Array {
  return concatBytes([
    lengthPrefixed(fromHex(meshId)),
    lengthPrefixed(fromHex(id)),
    u32(epoch),
    lengthPrefixed(fromHex(owner)),
    lengthPrefixed(fromHex(nonce)),
    lengthPrefixed(utf8(name)),
    u16(members.length),
    ...members.map((member) => fromHex(member)),
  ])
}

/** A group has 1 to 256 members; only the statement that ends it has none. */
export interface GroupFields extends Omit<MemberListFields, 'id'> {
  readonly groupId: GroupId
}

export interface GroupStatement extends GroupFields {
  readonly bytes: Uint8Array
}

export const GROUP_MEMBERS_MAX = 256
const GROUP: MemberListKind = {
  context: 'sealpost-group/1',
  idContext: 'sealpost-group-id/1',
  idBytes: 16,
  membersMax: GROUP_MEMBERS_MAX,
  lastEpoch: GROUP_EPOCH_LAST,
}

/**
 * Creates a group at its first epoch. @throws AssertionError unless name and members are valid, as described in
 * `GroupFields`
 */
export function createGroup(
  owner: SigningKeys,
  draft: Pick<GroupFields, 'meshId' | 'name' | 'members'>,
): GroupStatement {
  const nonce = newNonce()
  const groupId = groupIdOf(draft.meshId, owner.publicKey, nonce)
  return signGroup(owner, { ...draft, groupId, owner: owner.publicKey, nonce, epoch: 1 })
}

/** Signs the next epoch of a group, with a new name or new members. */
export function changeGroup(
  owner: SigningKeys,
  { bytes: _, ...group }: GroupStatement,
  change: Partial<Pick<GroupFields, 'name' | 'members'>>,
): GroupStatement {
  return signGroup(owner, { ...group, ...change, epoch: group.epoch + 1 })
}

/** Signs the statement that ends a group. */
export function endGroup(owner: SigningKeys, { bytes: _, ...group }: GroupStatement): GroupStatement {
  return signGroup(owner, { ...group, members: [], epoch: GROUP_EPOCH_LAST })
}

export const isGroupEnded = ({ epoch }: Pick<GroupFields, 'epoch'>): boolean => epoch === GROUP_EPOCH_LAST

/** Signs these fields as a group statement. Exported for test vectors. */
export function signGroup(owner: SigningKeys, { groupId, ...group }: GroupFields): GroupStatement {
  return groupOf(signMemberList(GROUP, owner, { ...group, id: groupId }))
}

/** Reads a group statement. Returns null unless every field is valid and the owner signed it. Never throws. */
export function readGroup(bytes: Uint8Array): GroupStatement | null {
  const roster = readMemberList(GROUP, bytes)
  return roster && groupOf(roster)
}

/** Reads a statement whose signature was verified on arrival. Returns null unless every field is valid. */
export function groupFields(bytes: Uint8Array): GroupFields | null {
  const fields = memberListFields(GROUP, bytes)
  return fields && groupOf(fields)
}

export const groupIdOf = (meshId: MeshId, owner: PeerKey, nonce: string): GroupId =>
  memberListIdOf(GROUP, meshId, owner, nonce) as GroupId

const groupOf = <R extends MemberListFields>({ id, ...roster }: R) => ({ ...roster, groupId: id as GroupId })

/**
 * A pool is a name and a list of members, one of whom takes each message. It is signed like a group. The id is as long
 * as a peer's key, because a pool is addressed like a peer; since the id is a hash, it is not the key of any peer.
 *
 * Bytes: as `signMemberList` writes them. Vector: packages/protocol/vectors/pool.json. A pool has 1 to 64 members; only
 * the statement that ends it has none.
 */
export interface PoolFields extends Omit<MemberListFields, 'id'> {
  readonly poolId: PoolId
}

export interface PoolStatement extends PoolFields {
  readonly bytes: Uint8Array
}

const POOL: MemberListKind = {
  context: 'sealpost-pool/1',
  idContext: 'sealpost-pool-id/1',
  idBytes: 32,
  membersMax: 64,
  lastEpoch: GROUP_EPOCH_LAST,
}

/**
 * Creates a pool at its first epoch. @throws AssertionError unless name and members are valid, as described in
 * `PoolFields`
 */
export function createPool(owner: SigningKeys, draft: Pick<PoolFields, 'meshId' | 'name' | 'members'>): PoolStatement {
  const nonce = newNonce()
  const poolId = poolIdOf(draft.meshId, owner.publicKey, nonce)
  return signPool(owner, { ...draft, poolId, owner: owner.publicKey, nonce, epoch: 1 })
}

/** Signs the next epoch of a pool, with a new name or new members. */
export function changePool(
  owner: SigningKeys,
  { bytes: _, ...pool }: PoolStatement,
  change: Partial<Pick<PoolFields, 'name' | 'members'>>,
): PoolStatement {
  return signPool(owner, { ...pool, ...change, epoch: pool.epoch + 1 })
}

/** Signs the statement that ends a pool. */
export function endPool(owner: SigningKeys, { bytes: _, ...pool }: PoolStatement): PoolStatement {
  return signPool(owner, { ...pool, members: [], epoch: GROUP_EPOCH_LAST })
}

export const isPoolEnded = ({ epoch }: Pick<PoolFields, 'epoch'>): boolean => epoch === GROUP_EPOCH_LAST

/** Signs these fields as a pool statement. Exported for test vectors. */
export function signPool(owner: SigningKeys, { poolId, ...pool }: PoolFields): PoolStatement {
  return poolStatementOf(signMemberList(POOL, owner, { ...pool, id: poolId }))
}

/** Reads a pool statement. Returns null unless every field is valid and the owner signed it. Never throws. */
export function readPool(bytes: Uint8Array): PoolStatement | null {
  const roster = readMemberList(POOL, bytes)
  return roster && poolStatementOf(roster)
}

export const poolIdOf = (meshId: MeshId, owner: PeerKey, nonce: string): PoolId =>
  memberListIdOf(POOL, meshId, owner, nonce) as PoolId

const poolStatementOf = ({ id, ...roster }: MemberListFields & { bytes: Uint8Array }): PoolStatement => ({
  ...roster,
  poolId: id as PoolId,
})
