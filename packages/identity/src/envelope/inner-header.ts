/**
 * Encodes the header inside the box, before the body. `crypto_box` proves only that the owner of one of two keys made
 * the box; it does not authenticate mesh, direction, id or order. So this header contains all of them, where the broker
 * can't change them. Fixed layout, big-endian:
 *     0 magic "SPE1"     21 sender 32       101 stream id 16   141 box epoch u32 (of the recipient)
 *     4 flags u8         53 recipient 32    117 seq u64        145 sentAtMs u64
 *     5 mesh id 16       85 envelope id 16  125 prev 16        153 padding length u32
 *
 * Flag 1: the envelope has a position in a stream. Without this flag, the stream's fields are zero. Flag 2: a note
 * follows the header, after its length in two bytes. There are no other flags yet. The code reads and writes in place
 * in libsodium's memory, because every message takes this path.
 */
import {
  assert,
  copyBytes,
  type EnvelopeId,
  type GroupId,
  holdsBytes,
  isHex,
  type Millis,
  type PeerKey,
  type PoolId,
  toHex,
  writeHex,
} from '@sealpost/std'
import { isUnsigned, readU32, readU64, utf8, writeU32, writeU64 } from '../byte-fields.ts'
import { MAC_BYTES, NONCE_BYTES } from './envelope-memory.ts'

/** A sender's stream to one recipient at one priority: 32 random hex digits. */
export type StreamId = string & { readonly streamId: unique symbol }

/**
 * The position of an envelope in its stream. `seq` counts from 1. `prev` is the hash of the previous header, or
 * `NO_PREV`.
 */
export interface StreamPosition {
  readonly streamId: StreamId
  readonly seq: number
  readonly prev: Uint8Array
}

export const NO_PREV = new Uint8Array(16)
export const HEADER_BYTES = 157
/** The number of bytes that sealing adds to a body, without padding. */
export const ENVELOPE_OVERHEAD_BYTES = NONCE_BYTES + MAC_BYTES + HEADER_BYTES

const MAGIC = 0x53504531
const FLAG_STREAM = 1
const FLAG_NOTE = 2
const FLAGS_AT = 4
/** The offset of mesh, sender and recipient, which are compared together. */
export const ROUTE_AT = 5
export const SENDER_AT = 21
export const RECIPIENT_AT = 53
export const ENVELOPE_ID_AT = 85
const STREAM_AT = 101
const SEQ_AT = 117
const PREV_AT = 125
const BOX_EPOCH_AT = 141
const SENT_AT_AT = 145
const PADDING_AT = 153

export interface HeaderFields {
  readonly route: Uint8Array
  readonly envelopeId: string
  readonly stream: StreamPosition | null
  readonly boxEpoch: number
  readonly sentAtMs: Millis
  readonly hasNote: boolean
  readonly paddingBytes: number
}

export function writeHeader(into: Uint8Array, at: number, fields: HeaderFields): void {
  writeU32(into, at, MAGIC)
  into[at + FLAGS_AT] = (fields.stream ? FLAG_STREAM : 0) | (fields.hasNote ? FLAG_NOTE : 0)
  into.set(fields.route, at + ROUTE_AT)
  writeId(into, at + ENVELOPE_ID_AT, fields.envelopeId)
  if (fields.stream) writeStream(into, at, fields.stream)
  else into.fill(0, at + STREAM_AT, at + BOX_EPOCH_AT)
  writeU32(into, at + BOX_EPOCH_AT, fields.boxEpoch)
  writeU64(into, at + SENT_AT_AT, fields.sentAtMs)
  writeU32(into, at + PADDING_AT, fields.paddingBytes)
}

function writeStream(into: Uint8Array, at: number, stream: StreamPosition): void {
  assert(stream.seq >= 1 && stream.prev.length === 16, 'invalid stream position')
  writeId(into, at + STREAM_AT, stream.streamId)
  writeU64(into, at + SEQ_AT, stream.seq)
  into.set(stream.prev, at + PREV_AT)
}

function writeId(into: Uint8Array, at: number, hex: string): void {
  assert(hex.length === 32 && writeHex(into, at, hex), 'an id is well-formed')
}

/** The fields of a decrypted header, except the route and the envelope id, which are compared in place. */
export interface InnerHeader {
  readonly stream: StreamPosition | null
  /** The epoch of the recipient's box key that the sender used. */
  readonly boxEpoch: number
  /** When the envelope was sealed, according to the sender's clock. */
  readonly sentAtMs: Millis
  readonly hasNote: boolean
  readonly paddingBytes: number
}

/** Reads stream ids. Decodes an id only when it changes. */
export class StreamIdReader {
  readonly #bytes = new Uint8Array(16)
  #id = toHex(this.#bytes) as StreamId

  read(from: Uint8Array, at: number): StreamId {
    if (holdsBytes(from, at, this.#bytes)) return this.#id
    for (let i = 0; i < 16; i++) this.#bytes[i] = from[at + i]!
    this.#id = toHex(this.#bytes) as StreamId
    return this.#id
  }
}

/** Returns null unless the plaintext begins with a valid header. */
export function readHeader(from: Uint8Array, at: number, length: number, name: StreamIdReader): InnerHeader | null {
  if (length < HEADER_BYTES || readU32(from, at) !== MAGIC) return null
  const paddingBytes = readU32(from, at + PADDING_AT)
  const sentAtMs = readU64(from, at + SENT_AT_AT)
  if (paddingBytes > length - HEADER_BYTES || !isUnsigned(sentAtMs, Number.MAX_SAFE_INTEGER)) return null
  if (!isStreamWellFormed(from, at)) return null
  return {
    stream: readStream(from, at, name),
    boxEpoch: readU32(from, at + BOX_EPOCH_AT),
    sentAtMs,
    hasNote: (from[at + FLAGS_AT]! & FLAG_NOTE) !== 0,
    paddingBytes,
  }
}

function readStream(from: Uint8Array, at: number, name: StreamIdReader): StreamPosition | null {
  if ((from[at + FLAGS_AT]! & FLAG_STREAM) === 0) return null
  return {
    streamId: name.read(from, at + STREAM_AT),
    seq: readU64(from, at + SEQ_AT),
    prev: copyBytes(from, at + PREV_AT, 16),
  }
}

function isStreamWellFormed(from: Uint8Array, at: number): boolean {
  const flags = from[at + FLAGS_AT]!
  if (flags > (FLAG_STREAM | FLAG_NOTE)) return false
  if ((flags & FLAG_STREAM) === 0) return isZero(from, at + STREAM_AT, at + BOX_EPOCH_AT)
  return isUnsigned(readU64(from, at + SEQ_AT) - 1, Number.MAX_SAFE_INTEGER - 1)
}

function isZero(bytes: Uint8Array, from: number, to: number): boolean {
  for (let i = from; i < to; i++) if (bytes[i] !== 0) return false
  return true
}

/**
 * Metadata that is sealed with the body, such as the thread or the envelope that it replies to, so that a broker can't
 * forge it. An absent flag is false.
 */
export interface Note {
  /** 32 hex digits. */
  readonly thread?: string
  /** The envelope that this one replies to. */
  readonly inReplyTo?: EnvelopeId
  readonly isRequest?: boolean
  readonly isError?: boolean
  /** Whether the message is ephemeral, and so not valid as mail. */
  readonly isEphemeral?: boolean
  /** The group of the message. The envelope's body is then the ticket to a shared body. */
  readonly group?: GroupId
  /** The epoch of the group statement that determined the recipients. */
  readonly groupEpoch?: number
  /** The user whose devices receive the message. The envelope's body is then the ticket to a shared body. */
  readonly user?: PeerKey
  /** The pool of the message. */
  readonly pool?: PoolId
  readonly poolEpoch?: number
  /** The reference to an attached file, written by `attachmentText`. */
  readonly attachment?: string
  /** The sender asks for a confirmation: `end`, or `all` for each outcome. Readers treat other values like `end`. */
  readonly confirm?: string
  /** Whether the body is a confirmation of the message that `inReplyTo` names. */
  readonly isConfirmation?: boolean
  /** What the sender knows of what it shares with the recipient, written by `encodeHeads`. */
  readonly heads?: string
}

const isId = (value: unknown) => typeof value === 'string' && isHex(value, 16)
const isText = (value: unknown) => typeof value === 'string'
const isFlag = (value: unknown) => typeof value === 'boolean'
const isEpoch = (value: unknown) => Number.isInteger(value) && (value as number) > 0 && (value as number) < 2 ** 31
const CHECKS: Readonly<Record<keyof Note, (value: unknown) => boolean>> = {
  thread: isId,
  inReplyTo: isId,
  isRequest: isFlag,
  isError: isFlag,
  isEphemeral: isFlag,
  group: isId,
  groupEpoch: isEpoch,
  user: (value) => typeof value === 'string' && isHex(value, 32),
  pool: (value) => typeof value === 'string' && isHex(value, 32),
  poolEpoch: isEpoch,
  attachment: isText,
  confirm: isText,
  isConfirmation: isFlag,
  heads: isText,
}
const KEYS = Object.keys(CHECKS) as (keyof Note)[]
/** The maximum size of a note, whose length field has two bytes. */
const NOTE_BYTES_MAX = 0xffff

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

interface Said {
  readonly note: Note | null
  readonly bytes: Uint8Array
}

/** The last encoded note, which all envelopes of a broadcast share. */
let written: Said = { note: null, bytes: new Uint8Array(0) }
let read = written

/** Returns the encoding of a note, with its keys in a fixed order. */
export function encodeNote(note: Note): Uint8Array {
  if (note === written.note) return written.bytes
  const bytes = utf8(JSON.stringify(note, KEYS))
  assert(bytes.length <= NOTE_BYTES_MAX, 'a note is short')
  written = { note, bytes }
  return bytes
}

/** Reads a note. Returns null unless its known keys have valid values. Ignores unknown keys of later versions. */
export function readNote(bytes: Uint8Array, from = 0, to = bytes.length): Note | null {
  if (to - from === read.bytes.length && holdsBytes(bytes, from, read.bytes)) return read.note
  const said = bytes.slice(from, to)
  read = { note: parseNote(said), bytes: said }
  return read.note
}

function parseNote(bytes: Uint8Array): Note | null {
  try {
    const said: unknown = JSON.parse(decoder.decode(bytes))
    if (typeof said !== 'object' || said === null || Array.isArray(said)) return null
    const named = KEYS.filter((key) => key in said).map((key) => [key, (said as Note)[key]] as const)
    if (!named.every(([key, value]) => CHECKS[key](value))) return null
    const note: Note = Object.fromEntries(named)
    if (note.group !== undefined && note.user !== undefined) return null
    const isWhole = (id: unknown, epoch: unknown) => (id === undefined) === (epoch === undefined)
    return isWhole(note.group, note.groupEpoch) && isWhole(note.pool, note.poolEpoch) ? note : null
  } catch {
    return null // not UTF-8 or not JSON
  }
}
