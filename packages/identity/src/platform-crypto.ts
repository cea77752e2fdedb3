/**
 * Chooses the faster implementation of what a new correspondent costs: X25519 of Node, Bun and Deno, and ed25519 of Bun.
 * In Node, OpenSSL verifies no faster than libsodium. The results are those of libsodium
 * (docs/adr/0019-native-agreement.md).
 *
 * `browser` in package.json replaces this file by `platform-crypto.browser.ts`, so a bundle for browsers contains
 * libsodium only. A page without a bundler loads this file, which therefore must not import `node:` modules.
 */
import { fromHex, toHex } from '@sealpost/std'
import { type BoxKeys, verify } from './keys/keys.ts'
import { NativeAgreement } from './native-agreement.ts'
import { NativeSignatures } from './native-signatures.ts'
import { sodium } from './sodium.ts'

/** The keys and the result of "Cryptography in NaCl", sections 2 to 8. */
const VECTOR = {
  own: {
    secretKey: fromHex('77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a'),
    publicKey: new Uint8Array(32),
    epoch: 1,
  },
  boxKey: fromHex('de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f'),
  sharedKey: '1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389',
}
const native = nativeCrypto()

/** Returns the shared key of two box keys, with the bytes of `crypto_box_beforenm`. Throws for a key of small order. */
export function sharedKeyOf(boxKey: Uint8Array, own: BoxKeys): Uint8Array {
  return native?.agreement.sharedKey(boxKey, own) ?? sodium.crypto_box_beforenm(boxKey, own.secretKey)
}

/**
 * Like `verify`, for verdicts that this process neither stores nor compares with those of others. The platform only
 * accepts; libsodium decides on every signature that the platform refuses.
 */
export function verifyForSelf(publicKey: string, message: Uint8Array, signature: Uint8Array): boolean {
  return native?.signatures?.verify(publicKey, message, signature) || verify(publicKey, message, signature)
}

function nativeCrypto(): { agreement: NativeAgreement; signatures: NativeSignatures | null } | null {
  const crypto = globalThis.process?.getBuiltinModule?.('node:crypto')
  if (!crypto) return null
  const agreement = new NativeAgreement(crypto)
  const isRight = toHex(agreement.sharedKey(VECTOR.boxKey, VECTOR.own) ?? new Uint8Array()) === VECTOR.sharedKey
  const signatures = process.versions.bun ? new NativeSignatures(crypto) : null
  return isRight ? { agreement, signatures } : null
}
