/**
 * A grant: one member gives another the keys of a space that it may have. It is signed by the one who gives, and boxed so
 * that only the other opens it; the broker stores what it can't read. Who gave it stands inside, so it proves itself
 * without any lookup of the giver's box key.
 *
 * Bytes: `crypto_box_seal` of the fields and the signature over the context `sealpost-grant/1` and the fields: lp(mesh id),
 * lp(space id), lp(granter), lp(member), u32 key epoch, u32 group epoch, link 32, name key 32, u16 number of keys, then u32
 * epoch and 32 bytes of each, ascending, the last one that of the key epoch. Vector: packages/protocol/vectors/grant.json.
 */
import {
  assert,
  fromHex,
  GROUP_EPOCH_LAST,
  isHex,
  type MeshId,
  OperatingError,
  type PeerKey,
  type SpaceId,
  toHex,
} from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u16, u32, utf8 } from '../byte-fields.ts'
import { type BoxKeys, SIGNATURE_BYTES, type SigningKeys, sign, verify } from '../keys/keys.ts'
import { sodium } from '../sodium.ts'

/**
 * What the members of a space share and its broker never has. The *name key* is one for the life of the space: under it a
 * key of the state becomes the hash that the broker files it by. A *space key* is good for one epoch, and no content is
 * sealed under it directly: each entry and each record has a key derived from it.
 */

/** Where a key belongs: one of another place or epoch opens nothing here. */
export interface KeyScope {
  readonly meshId: MeshId
  readonly spaceId: SpaceId
  readonly keyEpoch: number
}

const SPACE_KEY_BYTES = 32
/** An epoch is an `integer` of the database. */
export const KEY_EPOCH_MAX = 2 ** 31 - 1

/** A new name key, or a new space key. */
export const newSpaceKey = (): Uint8Array => crypto.getRandomValues(new Uint8Array(SPACE_KEY_BYTES))

/** 64 hex digits: the keyed BLAKE2b-256 of the key's UTF-8 under the name key. */
export function keyHashOf(nameKey: Uint8Array, key: string): string {
  return toHex(keyed(nameKey, utf8(key)))
}

/**
 * The key of one box. Its whole header goes in, so a box opens under no other header than its own: nobody who has not the
 * space key can sign what another member wrote as a newer revision, or as its own.
 */
export function boxKeyOf(spaceKey: Uint8Array, header: Uint8Array): Uint8Array {
  return keyed(spaceKey, concatBytes([context('sealpost-box-key/1'), header]))
}

/** Shows who has both that one key followed the other: nobody makes it without the former one. */
export function keyLink(formerKey: Uint8Array, key: Uint8Array, place: KeyScope): Uint8Array {
  return keyed(formerKey, concatBytes([context('sealpost-key-link/1'), placeBytes(place), key]))
}

function placeBytes({ meshId, spaceId, keyEpoch }: KeyScope): Uint8Array {
  return concatBytes([fromHex(meshId), fromHex(spaceId), u32(keyEpoch)])
}

function keyed(key: Uint8Array, text: Uint8Array): Uint8Array {
  assert(key.length === SPACE_KEY_BYTES, 'a key of a space has 32 bytes')
  return sodium.crypto_generichash(32, text, key)
}

export interface KeyGrant extends KeyScope {
  readonly granter: PeerKey
  readonly member: PeerKey
  /**
   * The granter vouches that the newest key was given to nobody but the members whom the group's statement of this epoch
   * names. 0 in the space of a mesh, which has no such statement.
   */
  readonly groupEpoch: number
  /** `keyLink` of the newest key to the one before it, zeros at epoch 1: who has the former key compares it. */
  readonly link: Uint8Array
  readonly nameKey: Uint8Array
  /** Those the member may have, ascending by epoch; the last one is that of `keyEpoch`. */
  readonly keys: readonly { readonly keyEpoch: number; readonly key: Uint8Array }[]
}

/** Older ones are left out: this number of rotations takes years. */
export const GRANT_KEYS_MAX = 1024
/** Of one box. */
export const GRANT_BYTES_MAX = 64 * 1024
export const NO_LINK = new Uint8Array(32)

/**
 * Other bytes each time.
 * @throws AssertionError when it is none; OperatingError `box_key_unusable`
 */
export function sealGrant(granter: SigningKeys, grant: KeyGrant, boxKey: Uint8Array): Uint8Array {
  const text = signGrant(granter, grant)
  try {
    return sodium.crypto_box_seal(text, boxKey)
  } catch (cause) {
    throw new OperatingError('box_key_unusable', 'The box key of this peer is none that a grant can be sealed to.', {
      cause,
    })
  }
}

/** What stands in the box: for test vectors. */
export function signGrant(granter: SigningKeys, grant: KeyGrant): Uint8Array {
  assert(granter.publicKey === grant.granter && isWellFormed(grant), 'a grant has two peers, a name key and keys')
  const fields = fieldBytes(grant)
  return concatBytes([fields, sign(granter, signedBytes(fields))])
}

/**
 * Null unless one of these box keys opens it, its granter signed it, and it is for this member. Whether the granter
 * belongs to the space is for the caller. Never throws.
 */
export function openGrant(box: Uint8Array, member: PeerKey, boxKeys: readonly BoxKeys[]): KeyGrant | null {
  if (box.length > GRANT_BYTES_MAX) return null
  for (const keys of boxKeys) {
    const text = unsealed(box, keys)
    if (text) return readGrant(text, member)
  }
  return null
}

function unsealed(box: Uint8Array, { publicKey, secretKey }: BoxKeys): Uint8Array | null {
  try {
    return sodium.crypto_box_seal_open(box, publicKey, secretKey)
  } catch {
    return null // for another key, changed, or too short
  }
}

function readGrant(text: Uint8Array, member: PeerKey): KeyGrant | null {
  if (text.length <= SIGNATURE_BYTES) return null
  const fields = text.subarray(0, text.length - SIGNATURE_BYTES)
  const grant = grantOf(fields)
  if (grant?.member !== member) return null
  return verify(grant.granter, signedBytes(fields), text.subarray(fields.length)) ? grant : null
}

function grantOf(fields: Uint8Array): KeyGrant | null {
  const reader = new FieldReader(fields)
  const grant = {
    meshId: toHex(reader.prefixed()) as KeyGrant['meshId'],
    spaceId: toHex(reader.prefixed()) as KeyGrant['spaceId'],
    granter: toHex(reader.prefixed()) as PeerKey,
    member: toHex(reader.prefixed()) as PeerKey,
    keyEpoch: reader.u32(),
    groupEpoch: reader.u32(),
    link: reader.take(32).slice(),
    nameKey: reader.take(SPACE_KEY_BYTES).slice(),
    keys: readKeys(reader),
  }
  return reader.isAtEnd && isWellFormed(grant) ? grant : null
}

function readKeys(reader: FieldReader): KeyGrant['keys'] {
  // One too many is read of a longer list, and refused with the whole.
  const count = Math.min(reader.u16(), GRANT_KEYS_MAX + 1)
  return Array.from({ length: count }, () => ({ keyEpoch: reader.u32(), key: reader.take(SPACE_KEY_BYTES).slice() }))
}

function isWellFormed({
  meshId,
  spaceId,
  granter,
  member,
  keyEpoch,
  groupEpoch,
  link,
  nameKey,
  keys,
}: KeyGrant): boolean {
  return (
    isHex(meshId, 16) &&
    isHex(spaceId, 16) &&
    isHex(granter, 32) &&
    isHex(member, 32) &&
    keyEpoch > 0 &&
    isUnsigned(groupEpoch, GROUP_EPOCH_LAST) &&
    link.length === NO_LINK.length &&
    nameKey.length === SPACE_KEY_BYTES &&
    keys.length <= GRANT_KEYS_MAX &&
    keys.at(-1)?.keyEpoch === keyEpoch &&
    keys.every((one, i) => isUnsigned(one.keyEpoch, KEY_EPOCH_MAX) && one.keyEpoch > (keys[i - 1]?.keyEpoch ?? 0)) &&
    keys.every(({ key }) => key.length === SPACE_KEY_BYTES)
  )
}

function signedBytes(fields: Uint8Array): Uint8Array {
  return concatBytes([context('sealpost-grant/1'), fields])
}

function fieldBytes(grant: KeyGrant): Uint8Array {
  return concatBytes([
    lengthPrefixed(fromHex(grant.meshId)),
    lengthPrefixed(fromHex(grant.spaceId)),
    lengthPrefixed(fromHex(grant.granter)),
    lengthPrefixed(fromHex(grant.member)),
    u32(grant.keyEpoch),
    u32(grant.groupEpoch),
    grant.link,
    grant.nameKey,
    u16(grant.keys.length),
    ...grant.keys.flatMap(({ keyEpoch, key }) => [u32(keyEpoch), key]),
  ])
}
