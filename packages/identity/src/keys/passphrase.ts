/**
 * A text locked with a passphrase: XChaCha20-Poly1305 under a key that Argon2id makes of it. Both are libsodium's, Argon2id
 * of its larger build, which is loaded here and nowhere else, and only when a passphrase is used: 0.2 s of processor time
 * to load, 0.3 s for the key at the usual cost (one in plain JavaScript took 2.6 s).
 */
import { fromHex, isHex, toHex } from '@sealpost/std'
import { isUnsigned, utf8 } from '../byte-fields.ts'
import { ready, sodium } from '../sodium.ts'

export interface PassphraseCost {
  readonly memoryKib: number
  readonly passes: number
}

/** As it stands in a file; `salt` of 16 bytes and `nonce` of 24 in hex. */
export interface LockHeader extends PassphraseCost {
  readonly kdf: 'argon2id'
  readonly cipher: 'xchacha20poly1305'
  readonly salt: string
  readonly nonce: string
}

export interface Locked {
  readonly lock: LockHeader
  /** Base64url. */
  readonly sealed: string
}

/** The second recommendation of RFC 9106, with one lane: who tries passphrases needs as much for each. */
export const USUAL_COST: PassphraseCost = { memoryKib: 65_536, passes: 3 }
/** What a file may ask of who opens it. */
const COST_MAX: PassphraseCost = { memoryKib: 1_048_576, passes: 16 }
const MEMORY_KIB_MIN = 8

const decoder = new TextDecoder('utf-8', { fatal: true })

/** `context` is not hidden, but can't be changed either. */
export async function lockText(
  text: string,
  passphrase: string,
  { context, cost }: { context: string; cost: PassphraseCost },
): Promise<Locked> {
  await ready()
  const random = (length: number) => toHex(crypto.getRandomValues(new Uint8Array(length)))
  const { memoryKib, passes } = cost
  const lock: LockHeader = {
    ...{ kdf: 'argon2id', memoryKib, passes, salt: random(16) },
    ...{ cipher: 'xchacha20poly1305', nonce: random(24) },
  }
  const key = await keyOf(passphrase, lock)
  const associated = utf8(`${context} ${headerText(lock)}`)
  const sealed = sodium.crypto_aead_xchacha20poly1305_ietf_encrypt(
    utf8(text),
    associated,
    null,
    fromHex(lock.nonce),
    key,
  )
  return { lock, sealed: sodium.to_base64(sealed) }
}

/** Null for another passphrase than it was locked with, and for anything changed since. */
export async function unlockText(
  { lock, sealed }: Locked,
  passphrase: string,
  context: string,
): Promise<string | null> {
  await ready()
  const key = await keyOf(passphrase, lock)
  const associated = utf8(`${context} ${headerText(lock)}`)
  try {
    const bytes = sodium.from_base64(sealed)
    const nonce = fromHex(lock.nonce)
    return decoder.decode(sodium.crypto_aead_xchacha20poly1305_ietf_decrypt(null, bytes, associated, nonce, key))
  } catch {
    return null // libsodium throws when the authenticator is wrong
  }
}

export function isLockHeader(value: { readonly [name: string]: unknown }): boolean {
  const { kdf, cipher, memoryKib, passes, salt, nonce } = value
  if (kdf !== 'argon2id' || cipher !== 'xchacha20poly1305' || !isHex(salt, 16) || !isHex(nonce, 24)) return false
  if (typeof memoryKib !== 'number' || typeof passes !== 'number') return false
  if (!isUnsigned(memoryKib, COST_MAX.memoryKib) || !isUnsigned(passes, COST_MAX.passes)) return false
  return memoryKib >= MEMORY_KIB_MIN && passes >= 1
}

const headerText = ({ kdf, memoryKib, passes, salt, cipher }: LockHeader): string =>
  [kdf, memoryKib, passes, salt, cipher].join(' ')

/** Keyboards spell one letter in several ways: the composed one counts. */
async function keyOf(passphrase: string, { salt, passes, memoryKib }: LockHeader): Promise<Uint8Array> {
  const { default: sumo } = await import('libsodium-wrappers-sumo')
  await sumo.ready
  const secret = passphrase.normalize('NFC')
  const bytes = memoryKib * 1024
  return sumo.crypto_pwhash(32, secret, fromHex(salt), passes, bytes, sumo.crypto_pwhash_ALG_ARGON2ID13)
}
