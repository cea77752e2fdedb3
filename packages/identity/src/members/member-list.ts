/**
 * A name and a list of members, signed by their owner: what groups and pools have in common. They differ in the contexts
 * that are signed and hashed, in the length of the id, and in how many members there may be.
 *
 * Bytes: the fields below, then the signature over the context and the fields: lp(mesh id), lp(id), u32 epoch, lp(owner),
 * lp(nonce), lp(name), u16 number of members, 32 bytes for each, ascending.
 */
import { assert, fromHex, isHex, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u16, u32, utf8 } from '../byte-fields.ts'
import { SIGNATURE_BYTES, type SigningKeys, sign, verify } from '../keys/keys.ts'
import { hash256 } from '../sodium.ts'

export interface MemberListFields {
  readonly meshId: MeshId
  readonly id: string
  /** From 1; a statement with a lower one than was seen before is an old one. */
  readonly epoch: number
  readonly owner: PeerKey
  /** 32 hex digits. */
  readonly nonce: string
  /** 1 to 64 characters of printable ASCII. */
  readonly name: string
  /** At least one key until it ends, ascending. The owner need not be one. */
  readonly members: readonly PeerKey[]
}

export interface MemberListKind {
  readonly context: string
  readonly idContext: string
  readonly idBytes: number
  readonly membersMax: number
  /** Of the statement that ends it, and of no other. */
  readonly lastEpoch: number
}

/** An `integer` of the database holds no more. */
const EPOCH_MAX = 2 ** 31 - 1
const NONCE_BYTES = 16
const NAME_MAX = 64

/** Random, to be kept in every epoch. */
export const newNonce = (): string => toHex(crypto.getRandomValues(new Uint8Array(NONCE_BYTES)))

export function memberListIdOf(kind: MemberListKind, meshId: MeshId, owner: PeerKey, nonce: string): string {
  const text = concatBytes([context(kind.idContext), fromHex(meshId), fromHex(owner), fromHex(nonce)])
  return toHex(hash256(text).subarray(0, kind.idBytes))
}

/** The bytes that prove it, members in their order and each once. @throws AssertionError unless it is well formed */
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

/** Null unless every field is as it should be and the owner signed it. Never throws. */
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

/** Null unless every field is as it should be; whoever signed it. Never throws. */
export function memberListFields(kind: MemberListKind, bytes: Uint8Array): MemberListFields | null {
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
  // One too many is read of a longer list, and refused with the whole.
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
