/**
 * The header inside the box, before the body. `crypto_box` proves only that one of two keys made a box: it binds neither
 * mesh, direction, id nor order, so all of these stand here, where the broker can't touch them. Fixed layout, big-endian:
 *
 *     0 magic "SPE1"     21 sender 32       101 stream id 16   141 box epoch u32 (of the recipient)
 *     4 flags u8         53 recipient 32    117 seq u64        145 sentAtMs u64
 *     5 mesh id 16       85 envelope id 16  125 prev 16        153 padding length u32
 *
 * Flag 1: the envelope has a place in a stream. Without it the stream's fields are zero. Flag 2: a note stands between the
 * header and the body, its length before it in two bytes. No other flag exists yet.
 * Written and read by hand and in place, at `at` of libsodium's memory: this is on the path of every message.
 */
import { assert, type Millis, toHex } from '@sealpost/std'
import { copyBytes, holdsBytes, isUnsigned, readU32, readU64, writeHex, writeU32, writeU64 } from '../byte-fields.ts'
import { MAC_BYTES, NONCE_BYTES } from './envelope-memory.ts'

/** A sender's stream to one recipient at one priority: 32 hex digits, random. */
export type StreamId = string & { readonly streamId: unique symbol }

/** Where an envelope stands in its stream. `seq` counts from 1; `prev` is the hash of the header before, or `NO_PREV`. */
export interface StreamPosition {
  readonly streamId: StreamId
  readonly seq: number
  readonly prev: Uint8Array
}

export const NO_PREV = new Uint8Array(16)
export const HEADER_BYTES = 157
/** What sealing adds to a body, before any padding. */
export const ENVELOPE_OVERHEAD_BYTES = NONCE_BYTES + MAC_BYTES + HEADER_BYTES

const MAGIC = 0x53504531
const FLAG_STREAM = 1
const FLAG_NOTE = 2
const FLAGS_AT = 4
/** Mesh, sender and recipient stand together, so that one comparison checks all three. */
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

/** Writes all `HEADER_BYTES` at `at`, whatever stood there. */
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
  assert(stream.seq >= 1 && stream.prev.length === 16, 'a place in a stream counts from 1 and has a prev of 16 bytes')
  writeId(into, at + STREAM_AT, stream.streamId)
  writeU64(into, at + SEQ_AT, stream.seq)
  into.set(stream.prev, at + PREV_AT)
}

function writeId(into: Uint8Array, at: number, hex: string): void {
  assert(hex.length === 32 && writeHex(into, at, hex), 'an id has 32 hex digits')
}

/** What a header that came out of a box says, beside the route and the envelope id, which are compared where they lie. */
export interface InnerHeader {
  readonly stream: StreamPosition | null
  /** The epoch of the recipient's box key that the sender meant to use. */
  readonly boxEpoch: number
  /** The sender's clock. */
  readonly sentAtMs: Millis
  readonly hasNote: boolean
  readonly paddingBytes: number
}

/** One envelope after the other stands in the same stream: its id is compared, and spelled when it is another one. */
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

/** Null unless a plaintext of `length` bytes begins with a header in the one form it can be written in. */
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
