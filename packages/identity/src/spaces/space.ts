/**
 * A space: where entries and history of a mesh or a group are kept, and for how long. Its owner signs the terms, so that
 * no broker can keep more than members agreed to, or show newcomers what was not meant for them.
 *
 * Bytes: the fields below, then the signature over the context and the fields: lp(mesh id), lp(space id), u32 epoch,
 * lp(owner), u16 historyFor, u16 flags (1: messages are kept), u32 keepSeconds, u64 keepBytes. Vector:
 * packages/protocol/vectors/space.json.
 */
import { assert, fromHex, isHex, type MeshId, type PeerKey, type SpaceId, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u16, u32, u64 } from '../byte-fields.ts'
import { SIGNATURE_BYTES, type SigningKeys, sign, verify } from '../keys/keys.ts'

/** Who may read what was written before they came: nobody for there is none, those who were there, or every member. */
export type HistoryAudience = (typeof HISTORY_FOR)[number]

export interface SpaceFields {
  readonly meshId: MeshId
  readonly spaceId: SpaceId
  readonly owner: PeerKey
  /** From 1; a statement with a lower one than was seen before is an old one. */
  readonly epoch: number
  readonly historyFor: HistoryAudience
  /** Of the history; it holds no more than either says. Both are 0 exactly where `historyFor` is `none`. */
  readonly keepSeconds: number
  readonly keepBytes: number
  /** Whether messages to the group may be kept in the history, too. Never with `none`. */
  readonly keepsMessages: boolean
}

/** A space and the bytes that prove it. */
export interface SpaceStatement extends SpaceFields {
  readonly bytes: Uint8Array
}

const HISTORY_FOR = ['none', 'joined', 'all'] as const // the place is the number
const FLAG_MESSAGES = 1
/** An `integer` of the database holds no more. */
const INTEGER_MAX = 2 ** 31 - 1

export const isHistoryAudience = (text: string): text is HistoryAudience => HISTORY_FOR.some((known) => known === text)

/** @throws AssertionError unless every field is as `Space` says, and the owner the one who signs */
export function signSpace(owner: SigningKeys, space: SpaceFields): SpaceStatement {
  assert(owner.publicKey === space.owner, 'an owner signs with the key it names')
  assert(isWellFormed(space), 'a space has a mesh, an id, an owner, an epoch and bounds')
  const fields = fieldBytes(space)
  return { ...space, bytes: concatBytes([fields, sign(owner, signedBytes(fields))]) }
}

/** A statement from its bytes; null unless every field is as `Space` says and its owner signed it. Never throws. */
export function readSpace(bytes: Uint8Array): SpaceStatement | null {
  if (bytes.length <= SIGNATURE_BYTES) return null
  const fields = bytes.subarray(0, bytes.length - SIGNATURE_BYTES)
  const space = spaceOf(fields)
  if (!space || !verify(space.owner, signedBytes(fields), bytes.subarray(fields.length))) return null
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
  return reader.isAtEnd && flags <= FLAG_MESSAGES && isWellFormed(space) ? space : null
}

function isWellFormed({ meshId, spaceId, owner, epoch, historyFor, ...keeps }: SpaceFields): boolean {
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

function signedBytes(fields: Uint8Array): Uint8Array {
  return concatBytes([context('sealpost-space/1'), fields])
}

function fieldBytes(space: SpaceFields): Uint8Array {
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
