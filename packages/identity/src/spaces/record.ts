/**
 * What the history keeps of a message to a group, beside its sealed body: the key to that body, sealed under the key of
 * the space, and signed by its author. Each names the hash of the author's record before it in the same stream, so one
 * that is left out between two is noticed. Fixed layout, big-endian:
 *
 *     0 magic "SPH1"    37 author 32      105 sentAtMs u64
 *     5 mesh id 16      69 body id 32     113 nonce 24
 *    21 space id 16    101 key epoch u32  137 crypto_secretbox, then signature 64
 *
 * The byte at 4 is 0. In the box: stream id 16, u64 place in the stream from 1, hash of the record before 32, content key
 * 32, then the note as in an envelope, none when nothing follows. Signed: the context `sealpost-record/1` and all before
 * the signature. Vector: packages/protocol/vectors/record.json.
 */
import { assert, fromHex, isHex, type Millis, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, u32, u64 } from '../byte-fields.ts'
import { TICKET_BYTES } from '../envelope/envelope-memory.ts'
import { encodeNote, type Note, readNote } from '../envelope/inner-header.ts'
import { SIGNATURE_BYTES, type SigningKeys, sign, verify } from '../keys/keys.ts'
import { hash256, sodium } from '../sodium.ts'
import { boxKeyOf, KEY_EPOCH_MAX, type KeyScope } from './grant.ts'

/** What anybody reads of a record. */
export interface RecordHeader extends KeyScope {
  readonly author: PeerKey
  /** 64 hex digits: the BLAKE2b-256 of the sealed body. */
  readonly bodyId: string
  /** The author's clock. */
  readonly sentAtMs: Millis
}

/** A header whose author signed it, with the bytes and their hash. */
export interface SignedRecord extends RecordHeader {
  readonly bytes: Uint8Array
  readonly hash: Uint8Array
}

/** Where a record stands among those of its author. A stream is new with each life of the author. */
export interface RecordPosition {
  /** 32 hex digits. */
  readonly streamId: string
  /** From 1. */
  readonly seq: number
  /** `NO_ENTRY` at 1. */
  readonly prevHash: Uint8Array
}

export interface RecordDraft extends KeyScope, RecordPosition {
  /** Content key and hash of the sealed body, as in the envelope of each member. */
  readonly ticket: Uint8Array
  readonly sentAtMs: Millis
  readonly note: Note | null
}

export interface OpenRecord extends RecordPosition {
  /** With it the sealed body opens. */
  readonly ticket: Uint8Array
  readonly note: Note | null
}

export const RECORD_BYTES_MAX = 2048

const MAGIC = 0x53504831
const NONCE_BYTES = 24
const HEADER_BYTES = 113
const PLACE_BYTES = 16 + 8 + 32
const CONTENT_KEY_BYTES = 32
const BYTES_MIN = HEADER_BYTES + NONCE_BYTES + 16 + PLACE_BYTES + CONTENT_KEY_BYTES + SIGNATURE_BYTES

/** As JSON. */
export const RECORD_NOTE_BYTES_MAX = RECORD_BYTES_MAX - BYTES_MIN

/** @throws AssertionError when the draft is none */
export function sealRecord(author: SigningKeys, draft: RecordDraft, spaceKey: Uint8Array): SignedRecord {
  return sealRecordWith(author, draft, spaceKey, crypto.getRandomValues(new Uint8Array(NONCE_BYTES)))
}

/** The same with a given nonce: for test vectors. */
export function sealRecordWith(
  author: SigningKeys,
  draft: RecordDraft,
  spaceKey: Uint8Array,
  nonce: Uint8Array,
): SignedRecord {
  assert(draft.ticket.length === TICKET_BYTES && isPosition(draft), 'a record has a ticket and a place in a stream')
  const { meshId, spaceId, keyEpoch, sentAtMs, ticket } = draft
  const bodyId = toHex(ticket.subarray(CONTENT_KEY_BYTES))
  const header = { meshId, spaceId, keyEpoch, author: author.publicKey, bodyId, sentAtMs }
  assert(isWellFormed(header), 'a record has an epoch and a time')
  const head = headerBytes(header)
  const box = sodium.crypto_secretbox_easy(plaintext(draft), nonce, boxKeyOf(spaceKey, head))
  const fields = concatBytes([head, nonce, box])
  const bytes = concatBytes([fields, sign(author, signedBytes(fields))])
  assert(bytes.length <= RECORD_BYTES_MAX, 'a record is at most 2 KiB')
  return { ...header, bytes, hash: hash256(bytes) }
}

/** Reads a header without checking its signature; null unless these bytes may be a record. Never throws. */
export function recordFields(bytes: Uint8Array): RecordHeader | null {
  if (bytes.length < BYTES_MIN || bytes.length > RECORD_BYTES_MAX) return null
  const reader = new FieldReader(bytes)
  const [magic, [flags]] = [reader.u32(), reader.take(1)]
  const header = {
    meshId: toHex(reader.take(16)) as KeyScope['meshId'],
    spaceId: toHex(reader.take(16)) as KeyScope['spaceId'],
    author: toHex(reader.take(32)) as PeerKey,
    bodyId: toHex(reader.take(32)),
    keyEpoch: reader.u32(),
    sentAtMs: reader.u64(),
  }
  return magic === MAGIC && flags === 0 && isWellFormed(header) ? header : null
}

/** The same of a record that its author signed. Never throws. */
export function readRecord(bytes: Uint8Array): SignedRecord | null {
  const header = recordFields(bytes)
  const fields = bytes.subarray(0, bytes.length - SIGNATURE_BYTES)
  if (!header || !verify(header.author, signedBytes(fields), bytes.subarray(fields.length))) return null
  return { ...header, bytes, hash: hash256(bytes) }
}

/** Null unless this key opens it and what it holds is as it should be. Never throws. */
export function openRecord(record: SignedRecord, spaceKey: Uint8Array): OpenRecord | null {
  const { bytes, bodyId } = record
  const boxAt = HEADER_BYTES + NONCE_BYTES
  const text = opened(
    bytes.subarray(boxAt, bytes.length - SIGNATURE_BYTES),
    bytes.subarray(HEADER_BYTES, boxAt),
    boxKeyOf(spaceKey, bytes.subarray(0, HEADER_BYTES)),
  )
  if (!text) return null
  const reader = new FieldReader(text)
  const place = { streamId: toHex(reader.take(16)), seq: reader.u64(), prevHash: reader.take(32).slice() }
  const ticket = concatBytes([reader.take(CONTENT_KEY_BYTES), fromHex(bodyId)])
  const note = reader.isAtEnd ? null : readNote(text, PLACE_BYTES + CONTENT_KEY_BYTES)
  return isPosition(place) && (reader.isAtEnd || note) ? { ...place, ticket, note } : null
}

function opened(box: Uint8Array, nonce: Uint8Array, key: Uint8Array): Uint8Array | null {
  try {
    return sodium.crypto_secretbox_open_easy(box, nonce, key)
  } catch {
    return null // sealed under another key, or changed
  }
}

function plaintext({ streamId, seq, prevHash, ticket, note }: RecordDraft): Uint8Array {
  const contentKey = ticket.subarray(0, CONTENT_KEY_BYTES)
  return concatBytes([fromHex(streamId), u64(seq), prevHash, contentKey, note ? encodeNote(note) : new Uint8Array(0)])
}

function isPosition({ streamId, seq, prevHash }: RecordPosition): boolean {
  const isFirst = prevHash.every((byte) => byte === 0)
  return (
    isHex(streamId, 16) &&
    isUnsigned(seq - 1, Number.MAX_SAFE_INTEGER - 1) &&
    prevHash.length === 32 &&
    (seq === 1) === isFirst
  )
}

function isWellFormed({ meshId, spaceId, keyEpoch, sentAtMs }: RecordHeader): boolean {
  const isPlaced = isHex(meshId, 16) && isHex(spaceId, 16)
  return isPlaced && isUnsigned(keyEpoch - 1, KEY_EPOCH_MAX - 1) && isUnsigned(sentAtMs, Number.MAX_SAFE_INTEGER)
}

function headerBytes({ meshId, spaceId, author, bodyId, keyEpoch, sentAtMs }: RecordHeader): Uint8Array {
  return concatBytes([
    u32(MAGIC),
    Uint8Array.of(0),
    fromHex(meshId),
    fromHex(spaceId),
    fromHex(author),
    fromHex(bodyId),
    u32(keyEpoch),
    u64(sentAtMs),
  ])
}

function signedBytes(fields: Uint8Array): Uint8Array {
  return concatBytes([context('sealpost-record/1'), fields])
}
