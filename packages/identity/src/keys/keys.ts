/**
 * Defines the identity of a peer: an ed25519 key that signs and names it, and an X25519 key for sealing its mail. They
 * are generated separately, as the libsodium documentation advises, and linked by a key binding (`key-binding.ts`).
 *
 * Stored signatures are verified with libsodium only: it refuses small-order keys and non-canonical signatures, which
 * other implementations accept (with the key `01 00…00`, R = identity and S = 0 verify any message). Handshake
 * signatures may be checked with `native-signatures.ts`, which refuses them as well.
 */
import { assert, fromHex, isHex, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, context } from '../byte-fields.ts'
import { hash256, sodium } from '../sodium.ts'

/** An ed25519 key pair. `secretKey` has libsodium's 64 bytes: the seed, then the public key. */
export interface SigningKeys {
  readonly publicKey: PeerKey
  readonly secretKey: Uint8Array
}

/** An X25519 key pair. `epoch` starts at 1 and increases with each rotation. */
export interface BoxKeys {
  readonly publicKey: Uint8Array
  readonly secretKey: Uint8Array
  readonly epoch: number
}

export interface Identity {
  readonly signing: SigningKeys
  readonly box: BoxKeys
}

const SEED_BYTES = 32
export const SIGNATURE_BYTES = 64

/**
 * Generates the keys of a new peer. Await `ready()` first.
 * @example const identity = generateIdentity()
 */
export function generateIdentity(): Identity {
  return { signing: generateSigningKeys(), box: generateBoxKeys(1) }
}

/** Returns the identity of these two seeds of 32 bytes, for test vectors. */
export function identityFromSeeds(seeds: { signing: Uint8Array; box: Uint8Array }): Identity {
  assert(seeds.box.length === SEED_BYTES, 'a seed of a box key has 32 bytes')
  const { publicKey, privateKey } = sodium.crypto_box_seed_keypair(seeds.box)
  return { signing: signingKeysFromSeed(seeds.signing), box: { publicKey, secretKey: privateKey, epoch: 1 } }
}

export function generateSigningKeys(): SigningKeys {
  return signingKeysFromSeed(crypto.getRandomValues(new Uint8Array(SEED_BYTES)))
}

export function signingKeysFromSeed(seed: Uint8Array): SigningKeys {
  assert(seed.length === SEED_BYTES, 'invalid seed')
  const { publicKey, privateKey } = sodium.crypto_sign_seed_keypair(seed)
  return { publicKey: toHex(publicKey) as PeerKey, secretKey: privateKey }
}

/** Generates a box key, for a new identity (epoch 1) or for a rotation (the former epoch + 1). */
export function generateBoxKeys(epoch: number): BoxKeys {
  return boxKeysFromSecret(crypto.getRandomValues(new Uint8Array(32)), epoch)
}

export function boxKeysFromSecret(secretKey: Uint8Array, epoch: number): BoxKeys {
  assert(secretKey.length === 32, 'a box secret has 32 bytes')
  return { publicKey: sodium.crypto_scalarmult_base(secretKey), secretKey, epoch }
}

/**
 * Returns an ed25519 signature of 64 bytes. The message must begin with a context that is unique to this use of the
 * key.
 */
export function sign(keys: SigningKeys, message: Uint8Array): Uint8Array {
  return sodium.crypto_sign_detached(message, keys.secretKey)
}

/** Returns whether the signature is valid. Never throws. */
export function verify(publicKey: string, message: Uint8Array, signature: Uint8Array): boolean {
  if (!isHex(publicKey, 32) || signature.length !== SIGNATURE_BYTES) return false
  return sodium.crypto_sign_verify_detached(signature, message, fromHex(publicKey))
}

export interface Signatures {
  sign(keys: SigningKeys, message: Uint8Array): Uint8Array
  verify(publicKey: string, message: Uint8Array, signature: Uint8Array): boolean
}

export const sodiumSignatures: Signatures = { sign, verify }

const FINGERPRINT_CONTEXT = 'sealpost-fingerprint/1'
const CROCKFORD = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'

/**
 * Returns the fingerprint of a key, which two people can compare aloud: the first 160 bits of BLAKE2b-256(context, key)
 * in Crockford's base32 (no I, L, O, U), eight groups of four joined by dashes.
 * @example console.log(fingerprint(peer.key))
 */
export function fingerprint(publicKey: PeerKey): string {
  const hash = hash256(concatBytes([context(FINGERPRINT_CONTEXT), fromHex(publicKey)]))
  let bits = 0n
  for (const byte of hash.subarray(0, 20)) bits = (bits << 8n) | BigInt(byte)
  const digits = Array.from({ length: 32 }, (_, i) => CROCKFORD[Number((bits >> BigInt(155 - 5 * i)) & 31n)])
  return inGroups(digits.join(''))
}

const inGroups = (digits: string): string => digits.match(/.{4}/g)!.join('-')

/** Parses a typed fingerprint, with or without hyphens and in any case. Returns `null` unless it is complete. */
export function readFingerprint(text: string): string | null {
  if (!/^[0-9a-z]{4}(?:-[0-9a-z]{4}){7}$|^[0-9a-z]{32}$/i.test(text)) return null
  const digits = text.replaceAll('-', '').toUpperCase().replaceAll('O', '0').replaceAll(/[IL]/g, '1')
  return digits.includes('U') ? null : inGroups(digits)
}
