import { fromHex, type PeerKey, toHex } from '@sealpost/std'
import { beforeAll, describe, expect, test } from 'vitest'
import {
  fingerprint,
  generateIdentity,
  generateSigningKeys,
  readFingerprint,
  ready,
  sign,
  sodiumSignatures,
} from '../index.ts'
import { NativeSignatures } from '../native-signatures.ts'
import { readVector } from '../test/fixtures.ts'

beforeAll(ready)

const message = new TextEncoder().encode('hello')

/** Points of order 1, 2, 4 and 8, including non-canonical encodings. */
const SMALL_ORDER = [
  `01${'00'.repeat(31)}`,
  `ec${'ff'.repeat(30)}7f`,
  '00'.repeat(32),
  `${'00'.repeat(31)}80`,
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa',
  `01${'00'.repeat(30)}80`,
  `ee${'ff'.repeat(30)}7f`,
]

describe.each([
  ['libsodium', sodiumSignatures],
  ['the platform', new NativeSignatures()],
])('by %s', (_, signatures) => {
  test('a signature verifies only with its key and message', () => {
    const [keys, others] = [generateSigningKeys(), generateSigningKeys()]
    const signature = signatures.sign(keys, message)
    expect(signatures.verify(keys.publicKey, message, signature)).toBe(true)
    expect(signatures.verify(others.publicKey, message, signature)).toBe(false)
    expect(signatures.verify(keys.publicKey, message.subarray(1), signature)).toBe(false)
  })

  test('keys and signatures of the wrong form are refused without an exception', () => {
    const keys = generateSigningKeys()
    const signature = signatures.sign(keys, message)
    const shapes = ['', keys.publicKey.slice(2), `${keys.publicKey}00`, keys.publicKey.toUpperCase(), 'zz'.repeat(32)]
    for (const publicKey of shapes) expect(signatures.verify(publicKey, message, signature)).toBe(false)
    for (const length of [0, 63])
      expect(signatures.verify(keys.publicKey, message, signature.subarray(0, length))).toBe(false)
    expect(signatures.verify(keys.publicKey, message, new Uint8Array(65))).toBe(false)
  })

  test.each(SMALL_ORDER)(
    'nothing verifies with the small-order key %s, not even with R = identity and S = 0',
    (publicKey) => {
      const signature = new Uint8Array(64)
      signature[0] = 1
      for (let n = 0; n < 16; n++) expect(signatures.verify(publicKey, Uint8Array.of(n), signature)).toBe(false)
    },
  )

  test('a signature whose S is not reduced is refused', () => {
    const keys = generateSigningKeys()
    const signature = signatures.sign(keys, message)
    expect(signatures.verify(keys.publicKey, message, addGroupOrderToS(signature))).toBe(false)
  })
})

test('the platform creates the same signatures as libsodium', () => {
  const keys = generateSigningKeys()
  expect(toHex(new NativeSignatures().sign(keys, message))).toBe(toHex(sign(keys, message)))
})

test('the list of small-order keys is complete', () => {
  const heights = new Set(SMALL_ORDER.map((key) => heightOf(key) % P))
  expect(heights.size).toBe(5)
  for (const height of heights) expect(doubled(doubled(doubled(height)))).toBe(1n)
})

test('generated identities differ, and their box keys are not derived from the signing keys', () => {
  const [a, b] = [generateIdentity(), generateIdentity()]
  expect(a.signing.publicKey).not.toBe(b.signing.publicKey)
  expect(toHex(a.box.publicKey)).not.toBe(toHex(b.box.publicKey))
  expect(toHex(a.box.secretKey)).not.toBe(toHex(a.signing.secretKey.subarray(0, 32)))
})

test('a fingerprint is stable and has eight groups', () => {
  const vector = readVector('handshake.json')
  const print = fingerprint(vector.transcript.peerKey as PeerKey)
  expect(print).toBe(vector.fingerprint)
  expect(print).toMatch(/^([0-9A-HJKMNP-TV-Z]{4}-){7}[0-9A-HJKMNP-TV-Z]{4}$/)
})

test('a typed fingerprint is parsed, and a similar text is refused', () => {
  const { fingerprint: print } = readVector('handshake.json') as { fingerprint: string }
  const bare = print.replaceAll('-', '')
  for (const typed of [print, print.toLowerCase(), bare, bare.replaceAll('0', 'o').replaceAll('1', 'l')])
    expect(readFingerprint(typed)).toBe(print)
  const others = ['bob', '', print.slice(0, 34), `${print}-`, ` ${print}`, print.replaceAll('-', ' '), 'U'.repeat(32)]
  for (const other of [...others, 'ab'.repeat(32)]) expect(readFingerprint(other)).toBeNull()
})

/** Returns the signature with S + L, the same scalar as S. */
function addGroupOrderToS(signature: Uint8Array): Uint8Array {
  const order = fromHex('edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010')
  const shifted = signature.slice()
  let carry = 0
  for (let i = 0; i < 32; i++) {
    const sum = shifted[32 + i]! + order[i]! + carry
    shifted[32 + i] = sum
    carry = sum >>> 8
  }
  return shifted
}

const P = 2n ** 255n - 19n
const D = (-121665n * inverse(121666n)) % P

function heightOf(publicKey: string): bigint {
  const bytes = [...fromHex(publicKey)].reverse()
  return BigInt(`0x${toHex(Uint8Array.from(bytes))}`) % 2n ** 255n
}

/** Returns the y coordinate of the doubled point, which depends on y alone. */
function doubled(y: bigint): bigint {
  const xx = (y * y - 1n) * inverse(D * y * y + 1n)
  return mod((y * y + xx) * inverse(1n - D * mod(xx * y * y)))
}

function mod(n: bigint): bigint {
  return ((n % P) + P) % P
}

function inverse(n: bigint): bigint {
  let [power, base] = [1n, mod(n)]
  for (let exponent = P - 2n; exponent > 0n; exponent >>= 1n) {
    if (exponent & 1n) power = mod(power * base)
    base = mod(base * base)
  }
  return power
}
