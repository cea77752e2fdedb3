/**
 * The one door to libsodium. It is WebAssembly and loads asynchronously; after `ready()` every function of this package
 * is synchronous. Before it, calls fail.
 *
 * Its wrapper functions are used as they are. Calling the raw WASM exports with memory of our own was measured at
 * 2.6 µs against the wrapper's 2.9 µs for a box of 378 bytes (Bun 1.4.5, two cores), which does not pay for managing
 * that memory. This build has no `crypto_hash_sha256`, so the hash of this package is BLAKE2b.
 */
import sodium from 'libsodium-wrappers'

/** Resolves when the functions of this package may be called; cheap to await again. */
export function ready(): Promise<void> {
  return sodium.ready
}

export { sodium }

/** BLAKE2b with 32 bytes of output and no key. */
export function hash256(bytes: Uint8Array): Uint8Array {
  return sodium.crypto_generichash(32, bytes, null)
}
