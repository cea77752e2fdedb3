/** Replaces `platform-crypto.ts` in bundles for browsers: libsodium alone. */
import type { BoxKeys } from './keys/keys.ts'
import { sodium } from './sodium.ts'

export { verify as verifyForSelf } from './keys/keys.ts'

export function sharedKeyOf(boxKey: Uint8Array, own: BoxKeys): Uint8Array {
  return sodium.crypto_box_beforenm(boxKey, own.secretKey)
}
