/**
 * A body for many, sealed once: `nonce (24) || crypto_secretbox(body)` under a key of its own. Who is to read it gets the
 * key and the hash of the sealed bytes in an envelope of its own. Everybody who reads it has the key; the hash is what
 * keeps one of them from putting another body in its place.
 */
import { toHex } from '@sealpost/std'
import { concatBytes } from '../byte-fields.ts'
import { hash256 } from '../sodium.ts'
import { envelopeMemory, SEAL_BYTES } from './envelope-memory.ts'

export interface SealedBody {
  /** 64 hex digits: the BLAKE2b-256 of `bytes`. */
  readonly bodyId: string
  readonly bytes: Uint8Array
  /** What the envelope of each reader holds as its body: content key, then the hash. */
  readonly ticket: Uint8Array
}

const NONCE_BYTES = 24
const KEY_BYTES = 32
const HASH_BYTES = 32
/** What sealing adds to a body. */
export const BODY_OVERHEAD_BYTES = SEAL_BYTES
export const TICKET_BYTES = KEY_BYTES + HASH_BYTES

export function sealBody(body: Uint8Array): SealedBody {
  const random = crypto.getRandomValues(new Uint8Array(KEY_BYTES + NONCE_BYTES))
  return sealBodyWith(body, random.subarray(0, KEY_BYTES), random.subarray(KEY_BYTES))
}

/** The same with a given key and nonce: for test vectors. */
export function sealBodyWith(body: Uint8Array, key: Uint8Array, nonce: Uint8Array): SealedBody {
  const memory = envelopeMemory()
  memory.reserve(SEAL_BYTES + body.length)
  memory.bytes.set(body, memory.plaintextAt)
  const bytes = memory.seal(body.length, nonce, key)
  const hash = hash256(bytes)
  return { bodyId: toHex(hash), bytes, ticket: concatBytes([key, hash]) }
}

/** Null unless these are the very bytes that the ticket was made for. Never throws. */
export function openBody(bytes: Uint8Array, ticket: Uint8Array): Uint8Array | null {
  if (ticket.length !== TICKET_BYTES || bytes.length < BODY_OVERHEAD_BYTES) return null
  const memory = envelopeMemory()
  memory.load(bytes)
  if (!memory.isHash(bytes.length, ticket, KEY_BYTES)) return null
  if (!memory.openLoaded(bytes.length, ticket)) return null
  const { plaintextAt } = memory
  return memory.bytes.slice(plaintextAt, plaintextAt + bytes.length - SEAL_BYTES)
}
