/**
 * One envelope at a time, in libsodium's own memory: it is written, hashed, sealed and opened where it lies. A body for
 * many has the same form under a key that is nobody's: `crypto_box` with a shared key is `crypto_secretbox`.
 *
 *     0 nonce 24   24 authenticator 16   40 plaintext
 *
 * The wrappers allocate and copy each argument and each result, there and here. Without that a body of 200 bytes is
 * sealed and its header hashed in 4.1 µs where it took 5.1, and opened in 3.1 where it took 4.2; of these 3.3 and 2.5 are
 * the cryptography itself. What is spared beside it is the garbage: a whole message costs both clients 10 µs, not 14.5
 * (`peer-engine.bench.ts`, with what was spared in the SDK and the codec).
 */
import { assert, toHex } from '@sealpost/std'
import { concatBytes, copyBytes } from '../byte-fields.ts'
import { hash256, type RawSodium, rawSodium } from '../sodium.ts'

export const NONCE_BYTES = 24
export const MAC_BYTES = 16
/** What stands before the plaintext. */
export const SEAL_BYTES = NONCE_BYTES + MAC_BYTES

const KEY_BYTES = 32
const HASH_BYTES = 32
const ROOM_MIN = 4096

export class EnvelopeMemory {
  /** Where the plaintext begins in `bytes`. */
  plaintextAt = 0
  readonly #raw: RawSodium = rawSodium()
  readonly #key = this.#raw._malloc(KEY_BYTES)
  readonly #hash = this.#raw._malloc(HASH_BYTES)
  #envelope = 0
  #room = 0

  /** The memory as it is now: ask again after anything else of libsodium was called, since it may have grown. */
  get bytes(): Uint8Array {
    return this.#raw.HEAPU8
  }

  /** Makes room for an envelope; what stood there is no longer promised. */
  reserve(length: number): void {
    if (length <= this.#room) return
    const room = Math.max(ROOM_MIN, length * 2)
    if (this.#envelope !== 0) this.#raw._free(this.#envelope)
    this.#envelope = this.#raw._malloc(room)
    assert(this.#envelope !== 0, 'libsodium has memory for an envelope')
    this.plaintextAt = this.#envelope + SEAL_BYTES
    this.#room = room
  }

  /** The first 16 of 32 bytes of BLAKE2b over the beginning of the plaintext. */
  hashPlaintext(length: number): Uint8Array {
    this.#raw._crypto_generichash(this.#hash, HASH_BYTES, this.plaintextAt, length, 0, 0, 0)
    return copyBytes(this.bytes, this.#hash, 16)
  }

  /** Boxes a plaintext of this length; the envelope is the caller's own. */
  seal(length: number, nonce: Uint8Array, sharedKey: Uint8Array): Uint8Array {
    const { bytes, plaintextAt } = this
    const envelope = this.#envelope
    const key = this.#key
    bytes.set(nonce, envelope)
    bytes.set(sharedKey, key)
    this.#raw._crypto_box_easy_afternm(envelope + NONCE_BYTES, plaintextAt, length, 0, envelope, key)
    return bytes.slice(envelope, plaintextAt + length)
  }

  /** Returns whether the key opens the envelope; then its plaintext stands in the memory. */
  open(sealed: Uint8Array, sharedKey: Uint8Array): boolean {
    this.load(sealed)
    return this.openLoaded(sealed.length, sharedKey)
  }

  /** Sealed bytes, to be hashed and opened where they lie. */
  load(sealed: Uint8Array): void {
    this.reserve(sealed.length)
    this.bytes.set(sealed, this.#envelope)
  }

  /** Whether the BLAKE2b-256 of what was loaded stands in `expected` at `at`. */
  isHash(length: number, expected: Uint8Array, at: number): boolean {
    const { bytes } = this
    const hash = this.#hash
    this.#raw._crypto_generichash(hash, HASH_BYTES, this.#envelope, length, 0, 0, 0)
    for (let i = 0; i < HASH_BYTES; i++) if (bytes[hash + i] !== expected[at + i]) return false
    return true
  }

  /** With the first 32 bytes of `sharedKey`. */
  openLoaded(length: number, sharedKey: Uint8Array): boolean {
    const { bytes, plaintextAt } = this
    const envelope = this.#envelope
    const key = this.#key
    for (let i = 0; i < KEY_BYTES; i++) bytes[key + i] = sharedKey[i]!
    const box = envelope + NONCE_BYTES
    return this.#raw._crypto_box_open_easy_afternm(plaintextAt, box, length - NONCE_BYTES, 0, envelope, key) === 0
  }
}

let memory: EnvelopeMemory | null = null

/** The one of this process: sealing and opening are synchronous, so nothing of two envelopes is ever mixed. */
export function envelopeMemory(): EnvelopeMemory {
  memory ??= new EnvelopeMemory()
  return memory
}

/**
 * A body for many, sealed once: `nonce (24) || crypto_secretbox(body)` under a key of its own. Who is to read it gets the
 * key and the hash of the sealed bytes in an envelope of its own. Everybody who reads it has the key; the hash is what
 * keeps one of them from putting another body in its place.
 */
export interface SealedBody {
  /** 64 hex digits: the BLAKE2b-256 of `bytes`. */
  readonly bodyId: string
  readonly bytes: Uint8Array
  /** What the envelope of each reader holds as its body: content key, then the hash. */
  readonly ticket: Uint8Array
}

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
