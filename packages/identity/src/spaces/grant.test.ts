import { fromHex, toHex } from '@sealpost/std'
import * as fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import {
  GRANT_BYTES_MAX,
  generateBoxKeys,
  type KeyGrant,
  keyLink,
  NO_LINK,
  openGrant,
  ready,
  sealGrant,
  sign,
  signingKeysFromSeed,
} from '../index.ts'
import { sodium } from '../sodium.ts'
import { flipped, KEYS, PLACE, peerNumber, readVector } from '../test/fixtures.ts'
import { signGrant } from './space.ts'

beforeAll(ready)

const [ann, bob, cat] = [1, 2, 3]
const keyOf = (n: number) => peerNumber(n).signing.publicKey
const key = (n: number) => new Uint8Array(32).fill(n)
const grant = (change: Partial<KeyGrant> = {}): KeyGrant => ({
  ...{
    ...PLACE,
    granter: keyOf(ann),
    member: keyOf(bob),
    groupEpoch: 7,
    link: keyLink(key(2), key(3), PLACE),
    nameKey: KEYS.nameKey,
  },
  ...{ keys: [{ keyEpoch: 1, key: key(1) }, { keyEpoch: 3, key: key(3) }], ...change }, // biome-ignore format: a row
})
const sealed = (change: Partial<KeyGrant> = {}) =>
  sealGrant(peerNumber(ann).signing, grant(change), peerNumber(bob).box.publicKey)
const openedBy = (n: number, box: Uint8Array) => openGrant(box, keyOf(n), [peerNumber(n).box])

test('a grant opens for its member, even after the member has rotated its box key', () => {
  expect(openedBy(bob, sealed())).toEqual(grant())
  expect(openGrant(sealed(), keyOf(bob), [generateBoxKeys(2), peerNumber(bob).box])).toEqual(grant())
  expect(openedBy(cat, sealed())).toBe(null)
})

test('a grant with a changed, missing or additional byte does not open', () => {
  const box = sealed()
  for (let at = 0; at < box.length; at += 9) {
    expect(openedBy(bob, flipped(box, at))).toBe(null)
    expect(openedBy(bob, box.subarray(0, at))).toBe(null)
  }
  expect(openedBy(bob, Uint8Array.of(...box, 0))).toBe(null)
})

test('nobody can grant in the name of another member, and a grant for one member is invalid for others', () => {
  const boxed = (text: Uint8Array) => openedBy(bob, sodium.crypto_box_seal(text, peerNumber(bob).box.publicKey))
  const text = signGrant(peerNumber(ann).signing, grant())
  expect(boxed(text)).toEqual(grant())
  const fields = text.subarray(0, -64)
  const signed = Buffer.concat([Buffer.from('sealpost-grant/1\0'), fields])
  expect(boxed(Uint8Array.of(...fields, ...sign(peerNumber(cat).signing, signed)))).toBe(null)
  expect(boxed(signGrant(peerNumber(ann).signing, grant({ member: keyOf(cat) })))).toBe(null)
})

test('only a holder of the former key can create the link to the next one', () => {
  const { link } = grant()
  expect(toHex(keyLink(key(2), key(3), PLACE))).toBe(toHex(link))
  expect(toHex(keyLink(key(9), key(3), PLACE))).not.toBe(toHex(link))
  expect(toHex(keyLink(key(2), key(3), { ...PLACE, keyEpoch: 4 }))).not.toBe(toHex(link))
})

test.each<[string, Partial<KeyGrant>]>([
  ['no key', { keys: [] }],
  ['no key of its epoch', { keys: [{ keyEpoch: 2, key: key(2) }] }],
  ['unsorted keys', { keys: [2, 1, 3].map((keyEpoch) => ({ keyEpoch, key: key(1) })) }],
  ['a short key', { keys: [{ keyEpoch: 3, key: new Uint8Array(31) }] }],
  ['a group epoch beyond the last one', { groupEpoch: 2 ** 32 }],
  ['a short name key', { nameKey: new Uint8Array(31) }],
  ['1,025 keys', { keyEpoch: 1025, keys: Array.from({ length: 1025 }, (_, n) => ({ keyEpoch: n + 1, key: key(1) })) }],
])('a grant with %s cannot be signed', (_, flaw) => {
  expect(() => sealed(flaw)).toThrow()
})

test('the largest grant has 1,024 keys', () => {
  const keys = Array.from({ length: 1024 }, (_, n) => ({ keyEpoch: n + 1, key: key(1) }))
  const box = sealed({ keyEpoch: 1024, link: NO_LINK, keys })
  expect(box.length).toBeLessThanOrEqual(GRANT_BYTES_MAX)
  expect(openedBy(bob, box)?.keys).toHaveLength(1024)
})

test('arbitrary bytes are opened or refused without an exception', () => {
  return fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), (any) => {
      expect(openedBy(bob, any)).toBe(null)
      expect(openedBy(bob, sodium.crypto_box_seal(any, peerNumber(bob).box.publicKey))).toBe(null)
    }),
  )
})

test('the vector', () => {
  const { granterSeed, memberBoxSecret, grant: said, text, box } = readVector('grant.json')
  const read = {
    ...said,
    link: fromHex(said.link),
    nameKey: fromHex(said.nameKey),
    keys: said.keys.map((one: { keyEpoch: number; key: string }) => ({ ...one, key: fromHex(one.key) })),
  }
  expect(toHex(signGrant(signingKeysFromSeed(fromHex(granterSeed)), read))).toBe(text)
  const secretKey = fromHex(memberBoxSecret)
  const keys = { publicKey: sodium.crypto_scalarmult_base(secretKey), secretKey, epoch: 1 }
  expect(openGrant(fromHex(box), said.member, [keys])).toEqual(read)
})
