import { fromHex, type PeerKey, toHex } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { readHeirs, readRecovery, ready, signHeirs, signingKeysFromSeed, signRecovery } from '../index.ts'
import { MESH, peerNumber, readVector } from '../test/fixtures.ts'

beforeAll(ready)

const user = () => peerNumber(1).signing
const phone = () => peerNumber(2).signing
const successor = () => peerNumber(3).signing
const thief = () => peerNumber(4).signing
const heirs = (epoch = 1) =>
  signHeirs(user(), { meshId: MESH, epoch, heirs: [{ device: phone().publicKey, label: 'phone' }] })
const recovery = () => signRecovery({ heir: phone(), successor: successor() }, { heirs: heirs(), atMs: 7 })

test('an heir certifies a successor of the user that named it', () => {
  expect(readHeirs(heirs(5))).toMatchObject({ meshId: MESH, user: user().publicKey, epoch: 5 })
  expect(readRecovery(recovery())).toEqual({
    ...{ meshId: MESH, epoch: 1, former: user().publicKey, successor: successor().publicKey, atMs: 7 },
    heir: { device: phone().publicKey, label: 'phone' },
    heirs: heirs(),
  })
})

test('a statement with a changed, missing or additional byte is refused', () => {
  for (const [bytes, read] of [
    [heirs(), readHeirs],
    [recovery(), readRecovery],
  ] as const) {
    for (let at = 0; at < bytes.length; at += 3) {
      const other = bytes.slice()
      other[at]! ^= 1
      expect(read(other)).toBe(null)
      expect(read(bytes.subarray(0, at))).toBe(null)
    }
    expect(read(Uint8Array.of(...bytes, 0))).toBe(null)
  }
})

test('only a named heir can certify, only for the user that named it, and only with the signature of the new key', () => {
  const by = (heir: typeof thief, next = successor) =>
    signRecovery({ heir: heir(), successor: next() }, { heirs: heirs(), atMs: 7 })
  expect(() => by(thief)).toThrow()
  expect(() => by(phone, phone)).toThrow()
  expect(() => by(phone, user)).toThrow()
  expect(() => by(() => ({ ...thief(), publicKey: phone().publicKey }))).toThrow()
  expect(() => by(phone, () => ({ ...thief(), publicKey: successor().publicKey }))).toThrow()
  const forged = signHeirs(thief(), { meshId: MESH, epoch: 9, heirs: [{ device: phone().publicKey, label: 'phone' }] })
  expect(
    readRecovery(signRecovery({ heir: phone(), successor: successor() }, { heirs: forged, atMs: 7 })),
  ).toMatchObject({ former: thief().publicKey })
})

test('a user names at most four different devices, and not its own key', () => {
  const naming = (...devices: PeerKey[]) =>
    signHeirs(user(), { meshId: MESH, epoch: 1, heirs: devices.map((device) => ({ device, label: 'x' })) })
  const keys = [2, 3, 4, 5, 6].map((n) => peerNumber(n).signing.publicKey)
  expect(readHeirs(naming(...keys.slice(0, 4)))?.heirs).toHaveLength(4)
  expect(readHeirs(naming())?.heirs).toEqual([])
  expect(() => naming(...keys)).toThrow()
  expect(() => naming(keys[0]!, keys[0]!)).toThrow()
  expect(() => naming(user().publicKey)).toThrow()
  expect(() => signHeirs(user(), { meshId: MESH, epoch: 0, heirs: [] })).toThrow()
})

test('the bytes match the vector', () => {
  const { seeds, meshId, epoch, heirs: named, atMs, ...bytes } = readVector('recovery.json')
  const keys = (name: string) => signingKeysFromSeed(fromHex(seeds[name]))
  const statement = signHeirs(keys('user'), { meshId, epoch, heirs: named })
  const signed = signRecovery({ heir: keys('heir'), successor: keys('successor') }, { heirs: statement, atMs })
  expect({ heirStatement: toHex(statement), recovery: toHex(signed) }).toEqual(bytes)
})
