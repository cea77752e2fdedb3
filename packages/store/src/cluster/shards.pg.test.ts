import { randomBytes } from 'node:crypto'
import { type Database, openDatabase } from '@sealpost/pg'
import { type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import { type MeshId, type PeerKey, type ShardId, toHex } from '@sealpost/std'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { createMesh } from '../meshes/meshes.ts'
import {
  listPins,
  listShards,
  pinMesh,
  removeShard,
  renewShardLease,
  type ShardRegistration,
  unpinMesh,
} from './shards.ts'

let scratch: ScratchDatabase
let db: Database

beforeEach(async () => {
  scratch = await scratchDatabase()
  db = await openDatabase(scratch.url, { ...unhurried, connections: 4 })
})
afterEach(async () => {
  await db.close()
  await scratch.drop()
})

const entry = (name: string, changed: Partial<ShardRegistration> = {}): ShardRegistration => ({
  name,
  shardId: toHex(randomBytes(16)) as ShardId,
  url: `wss://${name}.example`,
  brokerKey: toHex(randomBytes(32)) as PeerKey,
  certificate: null,
  ...changed,
})
const FOR_LONG = { leaseMs: 60_000, isNew: true }
const LAPSED = { leaseMs: -1, isNew: true }
const namesOf = (shards: readonly ShardRegistration[]) => shards.map(({ name }) => name)

test("live shards see each other's registrations", async () => {
  const [a, b] = [entry('a'), entry('b', { certificate: Uint8Array.of(1, 2, 3), url: null })]
  expect(namesOf((await renewShardLease(db, a, FOR_LONG)).shards)).toEqual(['a'])
  const { shards, leaseUntil } = await renewShardLease(db, b, FOR_LONG)
  expect(Number(leaseUntil)).toBeGreaterThan(Date.now() / 1000)
  expect(shards).toMatchObject([a, { ...b, certificate: expect.anything(), epoch: 1 }])
  expect([...shards[1]!.certificate!]).toEqual([1, 2, 3])
  expect(shards[1]!.leaseMs).toBeGreaterThan(0)
})

test('a shard with an expired lease is invisible until it renews', async () => {
  const [a, b] = [entry('a'), entry('b')]
  await renewShardLease(db, a, LAPSED)
  expect(namesOf((await renewShardLease(db, b, FOR_LONG)).shards)).toEqual(['b'])
  expect((await listShards(db)).map(({ name, leaseMs }) => [name, leaseMs > 0])).toEqual([['a', false], ['b', true]]) // biome-ignore format: short
  await renewShardLease(db, a, { ...FOR_LONG, isNew: false })
  expect(namesOf((await renewShardLease(db, b, FOR_LONG)).shards)).toEqual(['a', 'b'])
})

test('a newer process takes the name over permanently', async () => {
  const [older, newer] = [entry('a'), entry('a')]
  await renewShardLease(db, older, FOR_LONG)
  await renewShardLease(db, newer, FOR_LONG)
  const { leaseUntil, shards } = await renewShardLease(db, older, { ...FOR_LONG, isNew: false })
  expect(leaseUntil).toBeNull()
  expect(shards).toMatchObject([{ shardId: newer.shardId, epoch: 2 }])
  await removeShard(db, older)
  expect(await listShards(db)).toMatchObject([{ shardId: newer.shardId }])
  await removeShard(db, newer)
  expect(await listShards(db)).toEqual([])
})

test('a name is deleted after a day without a lease', async () => {
  await renewShardLease(db, entry('old'), { leaseMs: -86_500_000, isNew: true })
  await renewShardLease(db, entry('a'), FOR_LONG)
  expect(namesOf(await listShards(db))).toEqual(['a'])
})

test('a mesh is pinned to one shard, and unpinned', async () => {
  const meshId = toHex(randomBytes(16)) as MeshId
  expect(await pinMesh(db, meshId, 'a')).toBe(false)
  await createMesh(db, { meshId, name: 'a mesh' })
  await pinMesh(db, meshId, 'a')
  expect(await pinMesh(db, meshId, 'b')).toBe(true)
  expect((await renewShardLease(db, entry('a'), FOR_LONG)).pins).toEqual(new Map([[meshId, 'b']]))
  expect(await unpinMesh(db, meshId)).toBe(true)
  expect(await unpinMesh(db, meshId)).toBe(false)
  expect(await listPins(db)).toEqual(new Map())
})
