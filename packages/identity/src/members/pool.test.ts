import { fromHex, type PeerKey, toHex } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import {
  changePool,
  createGroup,
  createPool,
  hash256,
  poolIdOf,
  readGroup,
  readPool,
  ready,
  signingKeysFromSeed,
} from '../index.ts'
import { MESH, OTHER_MESH, peerNumber, readVector } from '../test/fixtures.ts'
import { signPool } from './group.ts'

beforeAll(ready)

const keyOf = (n: number) => n.toString(16).padStart(64, '0') as PeerKey
const owner = () => peerNumber(1).signing
const draft = { meshId: MESH, name: 'crew', members: [keyOf(2), keyOf(1)] }

test('a statement returns its fields, and a change keeps the pool id', () => {
  const pool = createPool(owner(), draft)
  expect(readPool(pool.bytes)).toEqual(pool)
  expect(pool).toMatchObject({ meshId: MESH, epoch: 1, owner: owner().publicKey, members: [keyOf(1), keyOf(2)] })
  expect(readPool(changePool(owner(), pool, { members: [keyOf(3)] }).bytes)).toMatchObject({
    poolId: pool.poolId,
    epoch: 2,
  })
  expect(poolIdOf(OTHER_MESH, owner().publicKey, pool.nonce)).not.toBe(pool.poolId)
})

test("a group's statement is not valid for a pool, nor the reverse", () => {
  expect(readPool(createGroup(owner(), draft).bytes)).toBe(null)
  expect(readGroup(createPool(owner(), draft).bytes)).toBe(null)
})

test('a pool has at most 64 members', () => {
  const members = Array.from({ length: 65 }, (_, n) => keyOf(n))
  expect(() => createPool(owner(), { ...draft, members })).toThrow()
  expect(createPool(owner(), { ...draft, members: members.slice(1) }).members).toHaveLength(64)
})

test('the vector', () => {
  const vector = readVector('pool.json')
  const keys = signingKeysFromSeed(fromHex(vector.ownerSeed))
  const pool = signPool(keys, vector.pool)
  expect(toHex(pool.bytes)).toBe(vector.bytes)
  expect(readPool(fromHex(vector.bytes))).toEqual(pool)
  const idText = Buffer.from('sealpost-pool-id/1\0').toString('hex') + vector.pool.meshId + vector.pool.owner
  expect(toHex(hash256(fromHex(idText + vector.pool.nonce)))).toBe(vector.pool.poolId)
})
