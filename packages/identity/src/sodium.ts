/**
 * The one door to libsodium. It is WebAssembly and loads asynchronously; after `ready()` every function of this package
 * is synchronous. Before it, calls fail.
 *
 * Its wrapper functions are used as they are for keys and signatures; envelopes, which are the path of every message,
 * have memory of their own (`envelope-memory.ts`). This build has no `crypto_hash_sha256`, so the hash of this package is
 * BLAKE2b.
 */
import sodium from 'libsodium-wrappers'

/**
 * What lies below the wrappers, as far as it is used here. Addresses are places in `HEAPU8`, which is another array after
 * the memory grew; a length is given as two halves of 32 bits.
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

/** Resolves when the functions of this package may be called; cheap to await again. */
export function ready(): Promise<void> {
  return sodium.ready
}

export { sodium }

/** The module that the wrappers call; they publish it when it is ready, and their types don't tell. */
export function rawSodium(): RawSodium {
  return (sodium as unknown as { libsodium: RawSodium }).libsodium
}

/** BLAKE2b with 32 bytes of output and no key. */
export function hash256(bytes: Uint8Array): Uint8Array {
  return sodium.crypto_generichash(32, bytes, null)
}
