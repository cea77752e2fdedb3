/**
 * Encodes the header of a ratcheted message. It is not encrypted. Big-endian:
 *     0 magic "SPR1"    15 ratchet key 32   55 fork u32      67 ack u32
 *     4 flags u8        47 chain u32        59 number u32    71 mac 16
 *     5 session id 10   51 parent u32       63 previous u32  87 [initiation], nonce 24, ciphertext and tag
 *
 * Flag 1: the initiation of the session follows the header. Flag 2: the sender has reset. The MAC covers every other byte of the message.
 */
import { copyBytes, fromHex, toHex } from '@sealpost/std'
import { readU32, writeU32 } from '../byte-fields.ts'
import { isRatcheted, RATCHET_MAGIC } from '../envelope/ratchet-magic.ts'
import { initiationLength } from './agreement.ts'
import { MAC_BYTES, NONCE_BYTES, TAG_BYTES } from './ratchet-crypto.ts'

export interface RatchetHeader {
  readonly sessionId: string
  /** The key of the sender's chain. */
  readonly key: Uint8Array
  /** The number of the sender's chain, from 1. */
  readonly chain: number
  /** The recipient's chain whose key this chain was computed with; 0: the signed prekey. */
  readonly parent: number
  /** How many chains of the sender have the same parent, and were begun before. */
  readonly fork: number
  /** The number of the message in its chain, from 0. */
  readonly number: number
  /** The number of messages in the sender's chain before. */
  readonly previous: number
  /** The highest chain of the recipient that the sender has opened. */
  readonly ack: number
  /** Whether the sender lost its former session, or refused messages of it. */
  readonly isReset: boolean
}

/** A message, split. */
export interface RatchetMessage {
  readonly header: RatchetHeader
  /** The header before its MAC. */
  readonly headerBytes: Uint8Array
  readonly mac: Uint8Array
  /** What the MAC covers after the header. */
  readonly rest: Uint8Array
  readonly initiation: Uint8Array | null
  readonly nonce: Uint8Array
  readonly sealed: Uint8Array
}

const FLAG_INITIATION = 1
const FLAG_RESET = 2
const KEY_AT = 15
const NUMBERS_AT = 47
const MAC_AT = 71
const HEADER_BYTES = MAC_AT + MAC_BYTES
/** The bytes that a ratchet adds to a text, without an initiation. */
export const RATCHET_OVERHEAD_BYTES = HEADER_BYTES + NONCE_BYTES + TAG_BYTES

export function encodeHeader(header: RatchetHeader, hasInitiation: boolean): Uint8Array {
  const bytes = new Uint8Array(MAC_AT)
  writeU32(bytes, 0, RATCHET_MAGIC)
  bytes[4] = (hasInitiation ? FLAG_INITIATION : 0) | (header.isReset ? FLAG_RESET : 0)
  bytes.set(fromHex(header.sessionId), 5)
  bytes.set(header.key, KEY_AT)
  const { chain, parent, fork, number, previous, ack } = header
  for (const [i, value] of [chain, parent, fork, number, previous, ack].entries())
    writeU32(bytes, NUMBERS_AT + 4 * i, value)
  return bytes
}

/** Returns null unless the bytes have the form of a ratcheted message. */
export function readMessage(bytes: Uint8Array): RatchetMessage | null {
  if (bytes.length < RATCHET_OVERHEAD_BYTES || !isRatcheted(bytes) || bytes[4]! > (FLAG_INITIATION | FLAG_RESET))
    return null
  const hasInitiation = (bytes[4]! & FLAG_INITIATION) !== 0
  const length = hasInitiation ? initiationLength(bytes.subarray(HEADER_BYTES)) : 0
  if (length === null || bytes.length < RATCHET_OVERHEAD_BYTES + length) return null
  const [chain, parent, fork, number, previous, ack] = [0, 4, 8, 12, 16, 20].map((at) =>
    readU32(bytes, NUMBERS_AT + at),
  )
  if (chain === 0) return null
  const nonceAt = HEADER_BYTES + length
  return {
    header: {
      ...{
        sessionId: toHex(bytes.subarray(5, KEY_AT)),
        key: copyBytes(bytes, KEY_AT, 32),
        chain: chain!,
        parent: parent!,
      },
      ...{ fork: fork!, number: number!, previous: previous!, ack: ack! },
      isReset: (bytes[4]! & FLAG_RESET) !== 0,
    },
    headerBytes: bytes.subarray(0, MAC_AT),
    mac: bytes.subarray(MAC_AT, HEADER_BYTES),
    rest: bytes.subarray(HEADER_BYTES),
    initiation: hasInitiation ? bytes.slice(HEADER_BYTES, nonceAt) : null,
    nonce: bytes.subarray(nonceAt, nonceAt + NONCE_BYTES),
    sealed: bytes.subarray(nonceAt + NONCE_BYTES),
  }
}
