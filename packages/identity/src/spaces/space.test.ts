import { fromHex, toHex } from '@sealpost/std'
import * as fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import { readSpace, ready, type SpaceFields, sign, signingKeysFromSeed, signSpace } from '../index.ts'
import { flipped, MESH, peerNumber, readVector, SPACE } from '../test/fixtures.ts'

beforeAll(ready)

const owner = () => peerNumber(1).signing
const draft = (): SpaceFields => ({
  ...{ meshId: MESH, spaceId: SPACE, owner: owner().publicKey, epoch: 1, historyFor: 'joined' },
  ...{ keepSeconds: 86_400, keepBytes: 1e9, keepsMessages: true },
})

test('a statement returns its fields', () => {
  const space = signSpace(owner(), draft())
  expect(readSpace(space.bytes)).toEqual(space)
  const none = { ...draft(), historyFor: 'none' as const, keepSeconds: 0, keepBytes: 0, keepsMessages: false }
  expect(readSpace(signSpace(owner(), none).bytes)).toMatchObject(none)
})

test('a statement with a changed, missing or additional byte is refused', () => {
  const { bytes } = signSpace(owner(), draft())
  for (let at = 0; at < bytes.length; at++) {
    expect(readSpace(flipped(bytes, at))).toBe(null)
    expect(readSpace(bytes.subarray(0, at))).toBe(null)
  }
  expect(readSpace(Uint8Array.of(...bytes, 0))).toBe(null)
})

test('a broker cannot sign for the owner', () => {
  const fields = signSpace(owner(), draft()).bytes.slice(0, -64)
  const by = (n: number) => {
    const signed = Buffer.concat([Buffer.from('sealpost-space/1\0'), fields])
    return readSpace(Uint8Array.of(...fields, ...sign(peerNumber(n).signing, signed)))
  }
  expect(by(1)).not.toBe(null)
  expect(by(2)).toBe(null)
  expect(() => signSpace(peerNumber(2).signing, draft())).toThrow()
})

test.each<[string, Partial<SpaceFields>]>([
  ['epoch 0', { epoch: 0 }],
  ['an epoch beyond the largest database integer', { epoch: 2 ** 31 }],
  ['no time limit', { keepSeconds: 0 }],
  ['no size limit', { keepBytes: 0 }],
  ['limits without a history', { historyFor: 'none', keepsMessages: false }],
  ['messages without a history', { historyFor: 'none', keepSeconds: 0, keepBytes: 0 }],
  ['an unknown reader', { historyFor: 'everybody' as never }],
])('a space with %s cannot be signed', (_, flaw) => {
  expect(() => signSpace(owner(), { ...draft(), ...flaw })).toThrow()
})

test('arbitrary bytes are read or refused without an exception', () => {
  return fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      expect(readSpace(bytes)).toBe(null)
    }),
  )
})

test('the vector', () => {
  const vector = readVector('space.json')
  const space = signSpace(signingKeysFromSeed(fromHex(vector.ownerSeed)), vector.space)
  expect(toHex(space.bytes)).toBe(vector.bytes)
})
