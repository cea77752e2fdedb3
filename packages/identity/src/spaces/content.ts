/**
 * Seals the contents of a space: entries of shared state, and records of messages in the history.
 *
 * An entry is the sealed value of a key, signed by its author. Its header is not sealed, so that the broker can read
 * it. Each entry contains the hash of the previous one under the same key, so that a reader detects a rollback. Fixed
 * layout, big-endian:
 *     0 magic "SPS1"    21 space id 16     77 hash of the entry before 32   145 sentAtMs u64
 *     4 flags u8        37 key hash 32    109 key epoch u32                 153 nonce 24
 *     5 mesh id 16      69 revision u64   113 author 32                     177 crypto_secretbox, then signature 64
 *
 * Flag 1: the key was deleted; its value is empty. In the box: u16 length of the key, the key, u32 length of the value,
 * the value, zeros as padding. Signed: the context `sealpost-entry/1` and everything before the signature. Vector:
 * packages/protocol/vectors/entry.json.
 */
import { assert, fromHex, isHex, type Millis, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, u16, u32, u64, utf8 } from '../byte-fields.ts'
import { TICKET_BYTES } from '../envelope/envelope-memory.ts'
import { encodeNote, type Note, readNote } from '../envelope/inner-header.ts'
import { SIGNATURE_BYTES, type SigningKeys, sign, verify } from '../keys/keys.ts'
import { hash256, sodium } from '../sodium.ts'
import { boxKeyOf, KEY_EPOCH_MAX, type KeyScope, keyHashOf } from './space.ts'

export interface EntryHeader extends KeyScope {
  /** 64 hex digits. */
  readonly keyHash: string
  /** Counts from 1; each change of a key increments it. */
  readonly revision: number
  /** The hash of the previous entry; `NO_ENTRY` at revision 1. */
  readonly prevHash: Uint8Array
  readonly author: PeerKey
  /** When the entry was sealed, according to the author's clock. */
  readonly sentAtMs: Millis
  readonly isDeleted: boolean
}

/** A header with a verified signature, the entry's bytes and their hash. */
export interface SignedEntry extends EntryHeader {
  readonly bytes: Uint8Array
  readonly hash: Uint8Array
}

export interface EntryDraft extends KeyScope {
  /** 1 to 512 bytes as UTF-8. */
  readonly key: string
  /** Null for a deletion. */
  readonly value: Uint8Array | null
  readonly revision: number
  readonly prevHash: Uint8Array
  readonly sentAtMs: Millis
  /** Key and value together are padded to a multiple of this; 1 means no padding. */
  readonly bucketBytes?: number
}

/** The name key, and the space key of the entry's epoch. */
export interface EntryKeys {
  readonly nameKey: Uint8Array
  readonly spaceKey: Uint8Array
}

export const NO_ENTRY = new Uint8Array(32)
export const ENTRY_KEY_BYTES_MAX = 512
export const ENTRY_VALUE_BYTES_MAX = 64 * 1024
/** The maximum size of an entry, which leaves room for header, box, signature and padding. */
export const ENTRY_BYTES_MAX = 68 * 1024

const ENTRY_MAGIC = 0x53505331
const FLAG_DELETED = 1
const NONCE_BYTES = 24
const ENTRY_HEADER_BYTES = 153
const SEAL_BYTES = NONCE_BYTES + 16
const LENGTHS_BYTES = 6
const ENTRY_BYTES_MIN = ENTRY_HEADER_BYTES + SEAL_BYTES + LENGTHS_BYTES + SIGNATURE_BYTES

/** Seals an entry. Each call returns different bytes. @throws AssertionError if the draft is invalid */
export function sealEntry(author: SigningKeys, draft: EntryDraft, keys: EntryKeys): SignedEntry {
  return sealEntryWith(author, draft, keys, crypto.getRandomValues(new Uint8Array(NONCE_BYTES)))
}

/** Seals with a given nonce, for test vectors. */
export function sealEntryWith(author: SigningKeys, draft: EntryDraft, keys: EntryKeys, nonce: Uint8Array): SignedEntry {
  const { key, value, bucketBytes = 1, ...place } = draft
  const header: EntryHeader = {
    ...place,
    keyHash: keyHashOf(keys.nameKey, key),
    author: author.publicKey,
    isDeleted: value === null,
  }
  assert(isEntry(header) && header.prevHash.length === 32, 'an entry has a revision, an epoch and a time')
  const text = entryText(utf8(key), value ?? new Uint8Array(0), bucketBytes)
  const head = entryHeaderBytes(header)
  const box = sodium.crypto_secretbox_easy(text, nonce, boxKeyOf(keys.spaceKey, head))
  const fields = concatBytes([head, nonce, box])
  const bytes = concatBytes([fields, sign(author, entrySignedBytes(fields))])
  assert(bytes.length <= ENTRY_BYTES_MAX, 'an entry is at most 68 KiB')
  return { ...header, bytes, hash: hash256(bytes) }
}

/** Reads a header without its signature. Returns null unless these bytes may be an entry. Never throws. */
export function entryFields(bytes: Uint8Array): EntryHeader | null {
  if (bytes.length < ENTRY_BYTES_MIN || bytes.length > ENTRY_BYTES_MAX) return null
  const reader = new FieldReader(bytes)
  const [magic, [flags = 0]] = [reader.u32(), reader.take(1)]
  const header = {
    isDeleted: flags === FLAG_DELETED,
    meshId: toHex(reader.take(16)) as KeyScope['meshId'],
    spaceId: toHex(reader.take(16)) as KeyScope['spaceId'],
    keyHash: toHex(reader.take(32)),
    revision: reader.u64(),
    prevHash: reader.take(32).slice(),
    keyEpoch: reader.u32(),
    author: toHex(reader.take(32)) as PeerKey,
    sentAtMs: reader.u64(),
  }
  return magic === ENTRY_MAGIC && flags <= FLAG_DELETED && isEntry(header) ? header : null
}

/** Reads an entry. Returns null unless its author signed it. Never throws. */
export function readEntry(bytes: Uint8Array): SignedEntry | null {
  const header = entryFields(bytes)
  const fields = bytes.subarray(0, bytes.length - SIGNATURE_BYTES)
  if (!header || !verify(header.author, entrySignedBytes(fields), bytes.subarray(fields.length))) return null
  return { ...header, bytes, hash: hash256(bytes) }
}

/**
 * Opens an entry. Returns null unless the keys open it and the key inside matches the hash in the header. Never throws.
 */
export function openEntry(entry: SignedEntry, keys: EntryKeys): { key: string; value: Uint8Array | null } | null {
  const { bytes, isDeleted } = entry
  const nonce = bytes.subarray(ENTRY_HEADER_BYTES, ENTRY_HEADER_BYTES + NONCE_BYTES)
  const box = bytes.subarray(ENTRY_HEADER_BYTES + NONCE_BYTES, bytes.length - SIGNATURE_BYTES)
  const text = opened(box, nonce, boxKeyOf(keys.spaceKey, bytes.subarray(0, ENTRY_HEADER_BYTES)))
  const parts = text && readEntryText(text)
  if (!parts || keyHashOf(keys.nameKey, parts.key) !== entry.keyHash) return null
  if (isDeleted) return parts.value.length === 0 ? { key: parts.key, value: null } : null
  return parts
}

function opened(box: Uint8Array, nonce: Uint8Array, key: Uint8Array): Uint8Array | null {
  try {
    return sodium.crypto_secretbox_open_easy(box, nonce, key)
  } catch {
    return null // sealed under another key, or changed
  }
}

/** Returns whether an entry may have this key: without lone surrogates, whose UTF-8 equals that of another key. */
export function isEntryKey(key: string): boolean {
  const { length } = utf8(key)
  return length > 0 && length <= ENTRY_KEY_BYTES_MAX && key.isWellFormed()
}

function entryText(key: Uint8Array, value: Uint8Array, bucketBytes: number): Uint8Array {
  assert(key.length > 0 && key.length <= ENTRY_KEY_BYTES_MAX, 'a key has 1 to 512 bytes')
  assert(value.length <= ENTRY_VALUE_BYTES_MAX, 'a value has at most 64 KiB')
  const overhang = (key.length + value.length) % bucketBytes
  const padding = new Uint8Array(overhang === 0 ? 0 : bucketBytes - overhang)
  return concatBytes([u16(key.length), key, u32(value.length), value, padding])
}

/** Marked as pure, so that bundles omit it if unused. */
const decoder = /* @__PURE__ */ new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function readEntryText(text: Uint8Array): { key: string; value: Uint8Array } | null {
  const reader = new FieldReader(text)
  const key = reader.prefixed()
  const length = reader.u32()
  const value = reader.take(length)
  if (value.length !== length || key.length === 0 || key.length > ENTRY_KEY_BYTES_MAX) return null
  try {
    return { key: decoder.decode(key), value: value.slice() }
  } catch {
    return null // not UTF-8
  }
}

function isEntry({ meshId, spaceId, revision, keyEpoch, sentAtMs, prevHash }: EntryHeader): boolean {
  return (
    isHex(meshId, 16) &&
    isHex(spaceId, 16) &&
    isUnsigned(revision - 1, Number.MAX_SAFE_INTEGER - 1) &&
    isUnsigned(keyEpoch - 1, KEY_EPOCH_MAX - 1) &&
    isUnsigned(sentAtMs, Number.MAX_SAFE_INTEGER) &&
    (revision === 1) === prevHash.every((byte) => byte === 0)
  )
}

function entryHeaderBytes(header: EntryHeader): Uint8Array {
  return concatBytes([
    u32(ENTRY_MAGIC),
    Uint8Array.of(header.isDeleted ? FLAG_DELETED : 0),
    fromHex(header.meshId),
    fromHex(header.spaceId),
    fromHex(header.keyHash),
    u64(header.revision),
    header.prevHash,
    u32(header.keyEpoch),
    fromHex(header.author),
    u64(header.sentAtMs),
  ])
}

function entrySignedBytes(fields: Uint8Array): Uint8Array {
  return concatBytes([context('sealpost-entry/1'), fields])
}

/**
 * A record of a group message in the history: the key to its sealed body, sealed under the key of the space and signed
 * by its author. Each record contains the hash of the author's previous one in the same stream, so that a reader
 * detects an omission. Fixed layout, big-endian:
 *     0 magic "SPH1"    37 author 32      105 sentAtMs u64
 *     5 mesh id 16      69 body id 32     113 nonce 24
 *    21 space id 16    101 key epoch u32  137 crypto_secretbox, then signature 64
 *
 * The byte at 4 is 0. In the box: stream id 16, u64 position in the stream from 1, hash of the previous record 32,
 * content key 32, then optionally the note as in an envelope. Signed: the context `sealpost-record/1` and everything
 * before the signature. Vector: packages/protocol/vectors/record.json.
 */
export interface RecordHeader extends KeyScope {
  readonly author: PeerKey
  /** 64 hex digits: the BLAKE2b-256 of the sealed body. */
  readonly bodyId: string
  /** When the record was sealed, according to the author's clock. */
  readonly sentAtMs: Millis
}

/** A header with a verified signature, the record's bytes and their hash. */
export interface SignedRecord extends RecordHeader {
  readonly bytes: Uint8Array
  readonly hash: Uint8Array
}

/** A record's position in its author's stream. Each process begins a new stream. */
export interface RecordPosition {
  /** 32 hex digits. */
  readonly streamId: string
  /** Counts from 1. */
  readonly seq: number
  /** `NO_ENTRY` at position 1. */
  readonly prevHash: Uint8Array
}

export interface RecordDraft extends KeyScope, RecordPosition {
  /** The sealed body's key and hash, as in each member's envelope. */
  readonly ticket: Uint8Array
  readonly sentAtMs: Millis
  readonly note: Note | null
}

export interface OpenRecord extends RecordPosition {
  /** The sealed body's key and hash. */
  readonly ticket: Uint8Array
  readonly note: Note | null
}

export const RECORD_BYTES_MAX = 2048

const RECORD_MAGIC = 0x53504831
const RECORD_HEADER_BYTES = 113
const PLACE_BYTES = 16 + 8 + 32
const CONTENT_KEY_BYTES = 32
const RECORD_BYTES_MIN = RECORD_HEADER_BYTES + NONCE_BYTES + 16 + PLACE_BYTES + CONTENT_KEY_BYTES + SIGNATURE_BYTES

/** The maximum length of the note as JSON. */
export const RECORD_NOTE_BYTES_MAX = RECORD_BYTES_MAX - RECORD_BYTES_MIN

/** Seals a record. @throws AssertionError if the draft is invalid */
export function sealRecord(author: SigningKeys, draft: RecordDraft, spaceKey: Uint8Array): SignedRecord {
  return sealRecordWith(author, draft, spaceKey, crypto.getRandomValues(new Uint8Array(NONCE_BYTES)))
}

/** Seals with a given nonce, for test vectors. */
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
  assert(isRecord(header), 'a record has an epoch and a time')
  const head = recordHeaderBytes(header)
  const box = sodium.crypto_secretbox_easy(recordText(draft), nonce, boxKeyOf(spaceKey, head))
  const fields = concatBytes([head, nonce, box])
  const bytes = concatBytes([fields, sign(author, recordSignedBytes(fields))])
  assert(bytes.length <= RECORD_BYTES_MAX, 'a record is at most 2 KiB')
  return { ...header, bytes, hash: hash256(bytes) }
}

/** Reads a header without its signature. Returns null unless these bytes may be a record. Never throws. */
export function recordFields(bytes: Uint8Array): RecordHeader | null {
  if (bytes.length < RECORD_BYTES_MIN || bytes.length > RECORD_BYTES_MAX) return null
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
  return magic === RECORD_MAGIC && flags === 0 && isRecord(header) ? header : null
}

/** Reads a record. Returns null unless its author signed it. Never throws. */
export function readRecord(bytes: Uint8Array): SignedRecord | null {
  const header = recordFields(bytes)
  const fields = bytes.subarray(0, bytes.length - SIGNATURE_BYTES)
  if (!header || !verify(header.author, recordSignedBytes(fields), bytes.subarray(fields.length))) return null
  return { ...header, bytes, hash: hash256(bytes) }
}

/** Opens a record. Returns null unless this key opens it and its contents are valid. Never throws. */
export function openRecord(record: SignedRecord, spaceKey: Uint8Array): OpenRecord | null {
  const { bytes, bodyId } = record
  const boxAt = RECORD_HEADER_BYTES + NONCE_BYTES
  const text = opened(
    bytes.subarray(boxAt, bytes.length - SIGNATURE_BYTES),
    bytes.subarray(RECORD_HEADER_BYTES, boxAt),
    boxKeyOf(spaceKey, bytes.subarray(0, RECORD_HEADER_BYTES)),
  )
  if (!text) return null
  const reader = new FieldReader(text)
  const place = { streamId: toHex(reader.take(16)), seq: reader.u64(), prevHash: reader.take(32).slice() }
  const ticket = concatBytes([reader.take(CONTENT_KEY_BYTES), fromHex(bodyId)])
  const note = reader.isAtEnd ? null : readNote(text, PLACE_BYTES + CONTENT_KEY_BYTES)
  return isPosition(place) && (reader.isAtEnd || note) ? { ...place, ticket, note } : null
}

function recordText({ streamId, seq, prevHash, ticket, note }: RecordDraft): Uint8Array {
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

function isRecord({ meshId, spaceId, keyEpoch, sentAtMs }: RecordHeader): boolean {
  const isPlaced = isHex(meshId, 16) && isHex(spaceId, 16)
  return isPlaced && isUnsigned(keyEpoch - 1, KEY_EPOCH_MAX - 1) && isUnsigned(sentAtMs, Number.MAX_SAFE_INTEGER)
}

function recordHeaderBytes({ meshId, spaceId, author, bodyId, keyEpoch, sentAtMs }: RecordHeader): Uint8Array {
  return concatBytes([
    u32(RECORD_MAGIC),
    Uint8Array.of(0),
    fromHex(meshId),
    fromHex(spaceId),
    fromHex(author),
    fromHex(bodyId),
    u32(keyEpoch),
    u64(sentAtMs),
  ])
}

function recordSignedBytes(fields: Uint8Array): Uint8Array {
  return concatBytes([context('sealpost-record/1'), fields])
}
