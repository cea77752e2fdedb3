/** Encrypts text with a passphrase, for key files and backups of identities. */
import { fromHex, isHex, toHex } from '@sealpost/std'
import { isUnsigned, utf8 } from '../byte-fields.ts'
import { ready, sodium } from '../sodium.ts'

const decoder = new TextDecoder('utf-8', { fatal: true })

/**
 * The cost of deriving a key from a passphrase with Argon2id, for XChaCha20-Poly1305. It needs libsodium's larger
 * build, which is loaded on demand in 0.2 s; a key at the usual cost takes 0.3 s.
 */
export interface PassphraseCost {
  readonly memoryKib: number
  readonly passes: number
}

/** The lock of a file, in hex. */
interface LockHeader extends PassphraseCost {
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

/** The second recommendation of RFC 9106, with one lane. An attacker pays this cost for each guess. */
export const USUAL_COST: PassphraseCost = { memoryKib: 65_536, passes: 3 }
/** The maximum cost that a file may impose on its reader. */
const COST_MAX: PassphraseCost = { memoryKib: 1_048_576, passes: 16 }
const MEMORY_KIB_MIN = 8

/** Encrypts a string with a passphrase. `context` is authenticated but not encrypted. */
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

/** Returns null if the passphrase is wrong or the contents were changed. */
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

/** Derives the key. Normalizes the passphrase, because keyboards encode letters in several ways. */
async function keyOf(passphrase: string, { salt, passes, memoryKib }: LockHeader): Promise<Uint8Array> {
  const { default: sumo } = await import('libsodium-wrappers-sumo')
  await sumo.ready
  const secret = passphrase.normalize('NFC')
  const bytes = memoryKib * 1024
  return sumo.crypto_pwhash(32, secret, fromHex(salt), passes, bytes, sumo.crypto_pwhash_ALG_ARGON2ID13)
}
