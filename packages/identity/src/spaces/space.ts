/**
 * Signs and reads the terms of spaces. A space stores the entries and history of a mesh or a group. The owner signs its
 * terms, so that no broker can store more than they allow, or show new members more.
 *
 * Bytes: the fields below, then the signature over the context and the fields: lp(mesh id), lp(space id), u32 epoch,
 * lp(owner), u16 historyFor, u16 flags (1: messages are kept), u32 keepSeconds, u64 keepBytes. Vector:
 * packages/protocol/vectors/space.json.
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
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u16, u32, u64, utf8 } from '../byte-fields.ts'
import { type BoxKeys, SIGNATURE_BYTES, type SigningKeys, sign, verify } from '../keys/keys.ts'
import { sodium } from '../sodium.ts'

/**
 * Which members may read history from before they joined. `none`: no history is kept; `joined`: new members can't read
 * it; `all`: every member can.
 */
export type HistoryAudience = (typeof HISTORY_FOR)[number]

export interface SpaceFields {
  readonly meshId: MeshId
  readonly spaceId: SpaceId
  readonly owner: PeerKey
  /** Counts from 1. A higher epoch replaces a lower one. */
  readonly epoch: number
  readonly historyFor: HistoryAudience
  /**
   * The limits of the history, in seconds and bytes, of which the first to be reached applies. Both are 0 if and only
   * if `historyFor` is `none`.
   */
  readonly keepSeconds: number
  readonly keepBytes: number
  /** Whether the history also records messages to the group. Always false if `historyFor` is `none`. */
  readonly keepsMessages: boolean
}

export interface SpaceStatement extends SpaceFields {
  readonly bytes: Uint8Array
}

const HISTORY_FOR = ['none', 'joined', 'all'] as const // the index is the number
const FLAG_MESSAGES = 1
/** The maximum of a database `integer`. */
const INTEGER_MAX = 2 ** 31 - 1

export const isHistoryAudience = (text: string): text is HistoryAudience => HISTORY_FOR.some((known) => known === text)

/** Signs the terms of a space. @throws AssertionError unless every field is valid and `owner` is the space's owner */
export function signSpace(owner: SigningKeys, space: SpaceFields): SpaceStatement {
  assert(owner.publicKey === space.owner, 'an owner signs with the key it names')
  assert(isSpace(space), 'a space has a mesh, an id, an owner, an epoch and bounds')
  const fields = spaceFields(space)
  return { ...space, bytes: concatBytes([fields, sign(owner, spaceSignedBytes(fields))]) }
}

/** Reads the terms of a space. Returns null unless every field is valid and the owner signed it. Never throws. */
export function readSpace(bytes: Uint8Array): SpaceStatement | null {
  if (bytes.length <= SIGNATURE_BYTES) return null
  const fields = bytes.subarray(0, bytes.length - SIGNATURE_BYTES)
  const space = spaceOf(fields)
  if (!space || !verify(space.owner, spaceSignedBytes(fields), bytes.subarray(fields.length))) return null
  return { ...space, bytes: bytes.slice() }
}

function spaceOf(fields: Uint8Array): SpaceFields | null {
  const reader = new FieldReader(fields)
  const meshId = toHex(reader.prefixed()) as MeshId
  const spaceId = toHex(reader.prefixed()) as SpaceId
  const epoch = reader.u32()
  const owner = toHex(reader.prefixed()) as PeerKey
  const historyFor = HISTORY_FOR[reader.u16()]!
  const flags = reader.u16()
  const [keepSeconds, keepBytes] = [reader.u32(), reader.u64()]
  const keepsMessages = flags === FLAG_MESSAGES
  const space = { meshId, spaceId, owner, epoch, historyFor, keepSeconds, keepBytes, keepsMessages }
  return reader.isAtEnd && flags <= FLAG_MESSAGES && isSpace(space) ? space : null
}

function isSpace({ meshId, spaceId, owner, epoch, historyFor, ...keeps }: SpaceFields): boolean {
  const { keepSeconds, keepBytes, keepsMessages } = keeps
  const isKept = historyFor !== 'none'
  return (
    isHex(meshId, 16) &&
    isHex(spaceId, 16) &&
    isHex(owner, 32) &&
    isUnsigned(epoch, INTEGER_MAX) &&
    epoch > 0 &&
    HISTORY_FOR.includes(historyFor) &&
    isUnsigned(keepSeconds, INTEGER_MAX) &&
    isUnsigned(keepBytes, Number.MAX_SAFE_INTEGER) &&
    keepSeconds > 0 === isKept &&
    keepBytes > 0 === isKept &&
    (isKept || !keepsMessages)
  )
}

function spaceSignedBytes(fields: Uint8Array): Uint8Array {
  return concatBytes([context('sealpost-space/1'), fields])
}

function spaceFields(space: SpaceFields): Uint8Array {
  return concatBytes([
    lengthPrefixed(fromHex(space.meshId)),
    lengthPrefixed(fromHex(space.spaceId)),
    u32(space.epoch),
    lengthPrefixed(fromHex(space.owner)),
    u16(HISTORY_FOR.indexOf(space.historyFor)),
    u16(space.keepsMessages ? FLAG_MESSAGES : 0),
    u32(space.keepSeconds),
    u64(space.keepBytes),
  ])
}

/** The space and epoch to which a key is bound. */
export interface KeyScope {
  readonly meshId: MeshId
  readonly spaceId: SpaceId
  readonly keyEpoch: number
}

const SPACE_KEY_BYTES = 32
/** The maximum epoch: a database `integer`. */
export const KEY_EPOCH_MAX = 2 ** 31 - 1

/** Generates a name key, with which the keys of entries are hashed, or the space key of one epoch. */
export const newSpaceKey = (): Uint8Array => crypto.getRandomValues(new Uint8Array(SPACE_KEY_BYTES))

/** Returns the keyed BLAKE2b-256 of the key's UTF-8 under the name key, as 64 hex digits. */
export function keyHashOf(nameKey: Uint8Array, key: string): string {
  return toHex(keyed(nameKey, utf8(key)))
}

/**
 * Derives a box's key from its whole header. Without the space key, nobody can sign another member's value as a newer
 * revision or their own.
 */
export function boxKeyOf(spaceKey: Uint8Array, header: Uint8Array): Uint8Array {
  return keyed(spaceKey, concatBytes([context('sealpost-box-key/1'), header]))
}

/** Returns the proof that one key followed the other, which only a holder of the former one can compute. */
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

/**
 * A grant, with which one member gives another the keys of a space. The granter signs it and seals it to the member. It
 * contains the granter's key, so that verification needs no lookup.
 *
 * Bytes: `crypto_box_seal` of the fields and the signature over the context `sealpost-grant/1` and the fields: lp(mesh
 * id), lp(space id), lp(granter), lp(member), u32 key epoch, u32 group epoch, link 32, name key 32, u16 number of keys,
 * then u32 epoch and 32 bytes of each, ascending, the last one that of the key epoch. Vector:
 * packages/protocol/vectors/grant.json.
 */
export interface KeyGrant extends KeyScope {
  readonly granter: PeerKey
  readonly member: PeerKey
  /**
   * The group epoch whose members are the only ones with the newest key, according to the granter; 0 for a mesh's
   * space.
   */
  readonly groupEpoch: number
  /** The `keyLink` from the previous key to the newest one; zeros at epoch 1. */
  readonly link: Uint8Array
  readonly nameKey: Uint8Array
  /** The member's keys, ascending by epoch up to `keyEpoch`. */
  readonly keys: readonly { readonly keyEpoch: number; readonly key: Uint8Array }[]
}

/** The maximum number of keys in a grant, enough for years of rotations. Older keys are omitted. */
export const GRANT_KEYS_MAX = 1024
/** The maximum size of a grant's box. */
export const GRANT_BYTES_MAX = 64 * 1024
export const NO_LINK = new Uint8Array(32)

/**
 * Seals a grant. Each call returns different bytes.
 * @throws AssertionError if the grant is invalid; OperatingError `box_key_unusable`
 */
export function sealGrant(granter: SigningKeys, grant: KeyGrant, boxKey: Uint8Array): Uint8Array {
  const text = signGrant(granter, grant)
  try {
    return sodium.crypto_box_seal(text, boxKey)
  } catch (cause) {
    throw new OperatingError('box_key_unusable', 'The box key of this peer is invalid: no grant can be sealed to it.', {
      cause,
    })
  }
}

/** Returns the signed contents of the box, for test vectors. */
export function signGrant(granter: SigningKeys, grant: KeyGrant): Uint8Array {
  assert(granter.publicKey === grant.granter && isGrant(grant), 'a grant has two peers, a name key and keys')
  const fields = grantFields(grant)
  return concatBytes([fields, sign(granter, grantSignedBytes(fields))])
}

/**
 * Opens a grant. Returns null unless a box key opens it, its granter signed it, and it is for this member. The caller
 * must check that the granter belongs to the space. Never throws.
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
    return null // sealed to another key, changed, or too short
  }
}

function readGrant(text: Uint8Array, member: PeerKey): KeyGrant | null {
  if (text.length <= SIGNATURE_BYTES) return null
  const fields = text.subarray(0, text.length - SIGNATURE_BYTES)
  const grant = grantOf(fields)
  if (grant?.member !== member) return null
  return verify(grant.granter, grantSignedBytes(fields), text.subarray(fields.length)) ? grant : null
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
  return reader.isAtEnd && isGrant(grant) ? grant : null
}

function readKeys(reader: FieldReader): KeyGrant['keys'] {
  // Read one key more than allowed, so that a list that is too long is refused.
  const count = Math.min(reader.u16(), GRANT_KEYS_MAX + 1)
  return Array.from({ length: count }, () => ({ keyEpoch: reader.u32(), key: reader.take(SPACE_KEY_BYTES).slice() }))
}

function isGrant({ meshId, spaceId, granter, member, keyEpoch, groupEpoch, link, nameKey, keys }: KeyGrant): boolean {
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

function grantSignedBytes(fields: Uint8Array): Uint8Array {
  return concatBytes([context('sealpost-grant/1'), fields])
}

function grantFields(grant: KeyGrant): Uint8Array {
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
