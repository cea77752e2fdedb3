/** Provides simulated worlds with keys that a seed determines. */
import { hash256, type Identity, signingKeysFromSeed } from '@sealpost/identity'
import { type RatchetCrypto, sodiumRatchetCrypto } from '@sealpost/identity/ratchet'
import { fromHex, type Random, toHex } from '@sealpost/std'

/** `sealedWith` learns of each key that seals. Without `isReal`, X25519 is symbolic, and takes 2 µs instead of 60. */
export function simulatedCrypto(
  random: Random,
  { isReal, sealedWith }: { isReal: boolean; sealedWith: (key: Uint8Array) => void },
): RatchetCrypto {
  const randomBytes = (length: number) => Uint8Array.from({ length }, () => random.below(256))
  const seal: RatchetCrypto['seal'] = (text, key, nonce, data) => {
    sealedWith(key)
    return sodiumRatchetCrypto.seal(text, key, nonce, data)
  }
  return { ...sodiumRatchetCrypto, ...(isReal ? {} : symbolicX25519), random: randomBytes, seal }
}

/** X25519 as symbols: only a secret of either side leads to the shared one, as the thief of a world respects. */
const symbolicX25519: Pick<RatchetCrypto, 'publicKeyOf' | 'sharedSecret'> = {
  publicKeyOf: hash256,
  sharedSecret: (secretKey, publicKey) => {
    const [low, high] = [toHex(hash256(secretKey)), toHex(publicKey)].sort()
    return hash256(fromHex(`${low}${high}`))
  },
}

export function simulatedIdentity(no: number, crypto: RatchetCrypto): Identity {
  const [signing, box] = [new Uint8Array(32).fill(2 * no + 1), new Uint8Array(32).fill(2 * no + 2)]
  const keys = { publicKey: crypto.publicKeyOf(box), secretKey: box, epoch: 1 }
  return { signing: signingKeysFromSeed(signing), box: keys }
}
