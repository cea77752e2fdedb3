/**
 * The header inside the box, before the body. `crypto_box` proves only that one of two keys made a box: it binds neither
 * mesh, direction, id nor order, so all of these stand here, where the broker can't touch them. Fixed layout, big-endian:
 *
 *     0 magic "SPE1"     21 sender 32       101 stream id 16   141 box epoch u32 (of the recipient)
 *     4 flags u8         53 recipient 32    117 seq u64        145 sentAtMs u64
 *     5 mesh id 16       85 envelope id 16  125 prev 16        153 padding length u32
 *
 * Flag 1: the envelope has a place in a stream. Without it the stream's fields are zero. No other flag exists yet.
 * Written and read by hand: this is on the path of every message.
 */
import { assert, fromHex, type Millis, toHex } from '@sealpost/std'
import { isUnsigned, readU32, readU64, writeU32, writeU64 } from './byte-fields.ts'
import { hash256 } from './sodium.ts'

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
export const NONCE_BYTES = 24
export const MAC_BYTES = 16
/** What sealing adds to a body, before any padding. */
export const ENVELOPE_OVERHEAD_BYTES = NONCE_BYTES + MAC_BYTES + HEADER_BYTES

const MAGIC = 0x53504531
const FLAG_STREAM = 1
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
  readonly paddingBytes: number
}

/** Writes all `HEADER_BYTES` at the beginning of `into`, whatever stood there. */
export function writeHeader(into: Uint8Array, fields: HeaderFields): void {
  writeU32(into, 0, MAGIC)
  into[FLAGS_AT] = fields.stream ? FLAG_STREAM : 0
  into.set(fields.route, ROUTE_AT)
  writeId(into, ENVELOPE_ID_AT, fields.envelopeId)
  if (fields.stream) writeStream(into, fields.stream)
  else into.fill(0, STREAM_AT, BOX_EPOCH_AT)
  writeU32(into, BOX_EPOCH_AT, fields.boxEpoch)
  writeU64(into, SENT_AT_AT, fields.sentAtMs)
  writeU32(into, PADDING_AT, fields.paddingBytes)
}

function writeStream(into: Uint8Array, stream: StreamPosition): void {
  assert(stream.seq >= 1 && stream.prev.length === 16, 'a place in a stream counts from 1 and has a prev of 16 bytes')
  writeId(into, STREAM_AT, stream.streamId)
  writeU64(into, SEQ_AT, stream.seq)
  into.set(stream.prev, PREV_AT)
}

function writeId(into: Uint8Array, at: number, hex: string): void {
  assert(hex.length === 32, 'an id has 32 hex digits')
  into.set(fromHex(hex), at)
}

/** A header that came out of a box. Fields are decoded when asked for. */
export class InnerHeader {
  readonly bytes: Uint8Array

  private constructor(bytes: Uint8Array) {
    this.bytes = bytes
  }

  /** Null unless the plaintext begins with a header in the one form it can be written in. */
  static parse(plaintext: Uint8Array): InnerHeader | null {
    if (plaintext.length < HEADER_BYTES || readU32(plaintext, 0) !== MAGIC) return null
    if (readU32(plaintext, PADDING_AT) > plaintext.length - HEADER_BYTES) return null
    if (!isUnsigned(readU64(plaintext, SENT_AT_AT), Number.MAX_SAFE_INTEGER)) return null
    return isStreamWellFormed(plaintext) ? new InnerHeader(plaintext.subarray(0, HEADER_BYTES)) : null
  }

  get stream(): StreamPosition | null {
    if (this.bytes[FLAGS_AT] === 0) return null
    return {
      streamId: toHex(this.bytes.subarray(STREAM_AT, SEQ_AT)) as StreamId,
      seq: readU64(this.bytes, SEQ_AT),
      prev: this.bytes.subarray(PREV_AT, BOX_EPOCH_AT),
    }
  }

  /** The epoch of the recipient's box key that the sender meant to use. */
  get boxEpoch(): number {
    return readU32(this.bytes, BOX_EPOCH_AT)
  }

  /** The sender's clock. */
  get sentAtMs(): Millis {
    return readU64(this.bytes, SENT_AT_AT)
  }

  get paddingBytes(): number {
    return readU32(this.bytes, PADDING_AT)
  }

  /** What the next envelope of the stream must carry as `prev`. */
  hash(): Uint8Array {
    return hashHeader(this.bytes)
  }
}

/** BLAKE2b of a header, the first 16 of 32 bytes. */
export function hashHeader(header: Uint8Array): Uint8Array {
  return hash256(header).slice(0, 16)
}

function isStreamWellFormed(plaintext: Uint8Array): boolean {
  if (plaintext[FLAGS_AT] === FLAG_STREAM)
    return isUnsigned(readU64(plaintext, SEQ_AT) - 1, Number.MAX_SAFE_INTEGER - 1)
  return plaintext[FLAGS_AT] === 0 && isZero(plaintext, STREAM_AT, BOX_EPOCH_AT)
}

function isZero(bytes: Uint8Array, from: number, to: number): boolean {
  for (let i = from; i < to; i++) if (bytes[i] !== 0) return false
  return true
}
