/**
 * A group: a name and a list of members, signed by its owner. Each change is a new statement with a higher epoch. The id
 * is made from the owner's key, so that nobody else's statement can stand for it, whatever a broker hands out.
 *
 * Bytes: the fields below, then the signature over the context `sealpost-group/1` and the fields: lp(mesh id), lp(group
 * id), u32 epoch, lp(owner), lp(nonce), lp(name), u16 number of members, 32 bytes for each, ascending. Vector:
 * packages/protocol/vectors/group.json.
 */
import { assert, fromHex, type GroupId, isHex, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u16, u32, utf8 } from './byte-fields.ts'
import { SIGNATURE_BYTES, type SigningKeys, sign, verify } from './keys.ts'
import { hash256 } from './sodium.ts'

export interface Group {
  readonly meshId: MeshId
  readonly groupId: GroupId
  /** From 1; a statement with a lower one than was seen before is an old one. */
  readonly epoch: number
  readonly owner: PeerKey
  /** 32 hex digits. */
  readonly nonce: string
  /** 1 to 64 characters of printable ASCII. */
  readonly name: string
  /** 1 to 256 keys, ascending. The owner need not be one. */
  readonly members: readonly PeerKey[]
}

/** A group and the bytes that prove it. */
export interface GroupStatement extends Group {
  readonly bytes: Uint8Array
}

export const GROUP_MEMBERS_MAX = 256
/** An `integer` of the database holds no more. */
const EPOCH_MAX = 2 ** 31 - 1
const NONCE_BYTES = 16
const ID_BYTES = 16

/** A new group, at its first epoch. @throws AssertionError unless name and members are as `Group` says */
export function foundGroup(owner: SigningKeys, draft: Pick<Group, 'meshId' | 'name' | 'members'>): GroupStatement {
  const nonce = toHex(crypto.getRandomValues(new Uint8Array(NONCE_BYTES)))
  const groupId = groupIdOf(draft.meshId, owner.publicKey, nonce)
  return signGroup(owner, { ...draft, groupId, owner: owner.publicKey, nonce, epoch: 1 })
}

/** The next epoch of a group, with another name or other members. */
export function changeGroup(
  owner: SigningKeys,
  { bytes: _, ...group }: GroupStatement,
  change: Partial<Pick<Group, 'name' | 'members'>>,
): GroupStatement {
  return signGroup(owner, { ...group, ...change, epoch: group.epoch + 1 })
}

/** Signs what it is given, members in their order: for test vectors. */
export function signGroup(owner: SigningKeys, group: Group): GroupStatement {
  const whole = { ...group, members: [...new Set(group.members)].sort() }
  assert(isGroupWellFormed(whole), 'a group has a name, 1 to 256 members, an epoch and the id of its owner')
  const fields = fieldBytes(whole)
  return { ...whole, bytes: concatBytes([fields, sign(owner, signedBytes(fields))]) }
}

/** A statement from its bytes; null unless every field is as `Group` says and its owner signed it. Never throws. */
export function readGroup(bytes: Uint8Array): GroupStatement | null {
  if (bytes.length <= SIGNATURE_BYTES) return null
  const fields = bytes.subarray(0, bytes.length - SIGNATURE_BYTES)
  const group = groupOf(fields)
  if (!group || !verify(group.owner, signedBytes(fields), bytes.subarray(fields.length))) return null
  return { ...group, bytes: bytes.slice() }
}

export function groupIdOf(meshId: MeshId, owner: PeerKey, nonce: string): GroupId {
  const text = concatBytes([context('sealpost-group-id/1'), fromHex(meshId), fromHex(owner), fromHex(nonce)])
  return toHex(hash256(text).subarray(0, ID_BYTES)) as GroupId
}

export const isGroupName = (name: string): boolean => /^[ -~]{1,64}$/.test(name)

function groupOf(fields: Uint8Array): Group | null {
  const reader = new FieldReader(fields)
  const group = {
    meshId: toHex(reader.prefixed()) as MeshId,
    groupId: toHex(reader.prefixed()) as GroupId,
    epoch: reader.u32(),
    owner: toHex(reader.prefixed()) as PeerKey,
    nonce: toHex(reader.prefixed()),
    name: String.fromCharCode(...reader.prefixed().subarray(0, 65)),
    members: readMembers(reader),
  }
  return reader.isAtEnd && isGroupWellFormed(group) ? group : null
}

function readMembers(reader: FieldReader): PeerKey[] {
  const count = reader.u16()
  return count > GROUP_MEMBERS_MAX ? [] : Array.from({ length: count }, () => toHex(reader.take(32)) as PeerKey)
}

function isGroupWellFormed({ meshId, groupId, epoch, owner, nonce, name, members }: Group): boolean {
  return (
    isHex(meshId, 16) &&
    isHex(owner, 32) &&
    isHex(nonce, NONCE_BYTES) &&
    groupIdOf(meshId, owner, nonce) === groupId &&
    isUnsigned(epoch, EPOCH_MAX) &&
    epoch > 0 &&
    isGroupName(name) &&
    members.length > 0 &&
    members.length <= GROUP_MEMBERS_MAX &&
    members.every((member, i) => isHex(member, 32) && (i === 0 || members[i - 1]! < member))
  )
}

function signedBytes(fields: Uint8Array): Uint8Array {
  return concatBytes([context('sealpost-group/1'), fields])
}

function fieldBytes({ meshId, groupId, epoch, owner, nonce, name, members }: Group): Uint8Array {
  return concatBytes([
    lengthPrefixed(fromHex(meshId)),
    lengthPrefixed(fromHex(groupId)),
    u32(epoch),
    lengthPrefixed(fromHex(owner)),
    lengthPrefixed(fromHex(nonce)),
    lengthPrefixed(utf8(name)),
    u16(members.length),
    ...members.map((member) => fromHex(member)),
  ])
}
