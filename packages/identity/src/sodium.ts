/**
 * Contains the only import of libsodium, which is WebAssembly and loads asynchronously. Once `ready()` has resolved,
 * every function of this package is synchronous. Before that, calls fail.
 *
 * Keys and signatures use its wrapper functions; envelopes, the path of every message, use its memory directly
 * (`envelope-memory.ts`). This build has no `crypto_hash_sha256`, so this package hashes with BLAKE2b.
 */
import sodium from 'libsodium-wrappers'

/**
 * The functions below libsodium's wrappers. Addresses are offsets in `HEAPU8`, which becomes another array when the
 * memory grows; a length consists of two halves of 32 bits.
 */
export interface RawSodium {
  readonly HEAPU8: Uint8Array
  _malloc(length: number): number
  _free(address: number): void
  _crypto_box_easy_afternm(box: number, text: number, length: number, high: 0, nonce: number, key: number): number
  _crypto_box_open_easy_afternm(text: number, box: number, length: number, high: 0, nonce: number, key: number): number
  _crypto_generichash(
    hash: number,
    hashLength: number,
    text: number,
    length: number,
    high: 0,
    key: 0,
    keyLength: 0,
  ): number
}

/**
 * Resolves once the functions of this package may be called. Repeated calls are cheap.
 * @example await ready()
 */
export function ready(): Promise<void> {
  return sodium.ready
}

export { sodium }

/** Returns the module behind the wrappers, which their types omit. */
export function rawSodium(): RawSodium {
  return (sodium as unknown as { libsodium: RawSodium }).libsodium
}

/** Returns the unkeyed BLAKE2b hash of 32 bytes. */
export function hash256(bytes: Uint8Array): Uint8Array {
  return sodium.crypto_generichash(32, bytes, null)
}
