import * as crypto from 'node:crypto'
import { fromHex, type PeerKey, toHex } from '@sealpost/std'
import { beforeAll, describe, expect, test } from 'vitest'
import { boxKeysFromSecret, ready, signingKeysFromSeed, sodiumSignatures, verifyForSelf } from './index.ts'
import { hsalsa20, NativeAgreement } from './native-agreement.ts'
import { NativeSignatures } from './native-signatures.ts'
import * as inBrowser from './platform-crypto.browser.ts'
import { sharedKeyOf } from './platform-crypto.ts'
import { sodium } from './sodium.ts'

beforeAll(ready)

const P = 2n ** 255n - 19n
const TOP_BIT = 2n ** 255n

/** Returns the 32 bytes of a coordinate, little-endian. */
const encoded = (u: bigint): Uint8Array => fromHex(u.toString(16).padStart(64, '0')).reverse()
const own = () => boxKeysFromSecret(crypto.randomBytes(32), 1)

describe('a shared key', () => {
  const native = new NativeAgreement()

  test('has the bytes of crypto_box_beforenm for 10,000 random pairs', () => {
    let keys = own()
    for (let i = 0; i < 10_000; i++) {
      if (i % 10 === 0) keys = own()
      // Any 32 bytes are the coordinate of a point on the curve or on its twist.
      const boxKey = new Uint8Array(crypto.randomBytes(32))
      const expected = toHex(sodium.crypto_box_beforenm(boxKey, keys.secretKey))
      expect(toHex(native.sharedKey(boxKey, keys)!)).toBe(expected)
    }
  })

  test('is the same in both directions, and in the replacement for browsers', () => {
    const [a, b] = [own(), own()]
    const shared = toHex(sharedKeyOf(b.publicKey, a))
    expect(toHex(sharedKeyOf(a.publicKey, b))).toBe(shared)
    expect(toHex(inBrowser.sharedKeyOf(b.publicKey, a))).toBe(shared)
  })

  /** The coordinates of order 1, 2, 4 and 8, on the curve and on its twist. */
  const ORDER_8 = [
    '00b8495f16056286fdb1329ceb8d09da6ac49ff1fae35616aeb8413b7c7aebe0',
    '57119fd0dd4e22d8868e1c58c45c44045bef839c55b1d0b1248c50a3bc959c5f',
  ].map((digits) => BigInt(`0x${digits}`))
  const SMALL_ORDER = [0n, 1n, P - 1n, P, P + 1n, ...ORDER_8]

  test.each(SMALL_ORDER.flatMap((u) => [u, u + TOP_BIT]).map((u) => [toHex(encoded(u)), encoded(u)] as const))(
    'is refused for the box key of small order %s',
    (_, boxKey) => {
      const keys = own()
      expect(native.sharedKey(boxKey, keys)).toBe(null)
      expect(() => sodium.crypto_box_beforenm(boxKey, keys.secretKey)).toThrow()
      expect(() => sharedKeyOf(boxKey, keys)).toThrow()
    },
  )

  test('has the same bytes for every other encoding that is not canonical', () => {
    const keys = own()
    for (let u = P + 2n; u < TOP_BIT; u++)
      for (const boxKey of [encoded(u), encoded(u + TOP_BIT), encoded(u - P + TOP_BIT)])
        expect(toHex(native.sharedKey(boxKey, keys)!)).toBe(toHex(sodium.crypto_box_beforenm(boxKey, keys.secretKey)))
  })

  test('comes from libsodium if the platform fails, has no X25519, or returns a secret of zeros', () => {
    const [boxKey, keys] = [own().publicKey, own()]
    const broken = [
      () => {
        throw new Error('disabled for fips')
      },
      () => Buffer.alloc(32),
      () => Buffer.alloc(0),
    ]
    for (const diffieHellman of broken)
      expect(new NativeAgreement({ ...crypto, diffieHellman }).sharedKey(boxKey, keys)).toBe(null)
    expect(native.sharedKey(boxKey.subarray(1), keys)).toBe(null)
  })
})

test('HSalsa20 returns the vector of "Cryptography in NaCl"', () => {
  const shared = fromHex('4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742')
  expect(toHex(hsalsa20(shared))).toBe('1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389')
})

describe('a crafted signature', () => {
  const message = new TextEncoder().encode('hello')
  const seed = new Uint8Array(32).fill(7)
  let honest: PeerKey
  beforeAll(() => {
    honest = signingKeysFromSeed(seed).publicKey
  })

  test('whose R has small order is refused', () => {
    for (const r of [`01${'00'.repeat(31)}`, `ec${'ff'.repeat(30)}7f`, '00'.repeat(32)]) {
      const signature = signedWithNonce(message, { seed, publicKey: honest, r: fromHex(r) })
      expect(sodiumSignatures.verify(honest, message, signature)).toBe(false)
      expect(new NativeSignatures().verify(honest, message, signature)).toBe(false)
    }
  })

  test('gets the verdict of libsodium', () => {
    const r = fromHex(`01${'00'.repeat(31)}`)
    for (let n = 0; n < 64; n++) {
      const text = Uint8Array.of(n)
      const signature = signedWithNonce(text, { seed, publicKey: honest, r })
      expect(verifyForSelf(honest, text, signature)).toBe(sodiumSignatures.verify(honest, text, signature))
    }
  })
})

/** The order of the base point. */
const L = 2n ** 252n + 27742317777372353535851937790883648493n

/** Signs with R = `r`, as if its secret were 0, so that S = h · a. */
function signedWithNonce(
  message: Uint8Array,
  { seed, publicKey, r }: { seed: Uint8Array; publicKey: PeerKey; r: Uint8Array },
): Uint8Array {
  const hash = (...parts: Uint8Array[]) => crypto.createHash('sha512').update(Buffer.concat(parts)).digest()
  const scalar = hash(seed).subarray(0, 32)
  scalar[0]! &= 248
  scalar[31] = (scalar[31]! & 127) | 64
  const number = (bytes: Uint8Array) => BigInt(`0x${toHex(Uint8Array.from(bytes).reverse())}`)
  const s = (number(hash(r, fromHex(publicKey), message)) * number(scalar)) % L
  return new Uint8Array([...r, ...encoded(s)])
}
