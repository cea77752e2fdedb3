import { randomBytes } from 'node:crypto'
import { type MeshId, type PeerKey, type ShardId, toHex } from '@sealpost/std'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { createMesh } from './admin.ts'
import { type Database, openDatabase } from './connect.ts'
import { keepShard, leaveShards, listPins, listShards, pinMesh, type ShardEntry, unpinMesh } from './shards.ts'
import { type ScratchDatabase, scratchDatabase, unhurried } from './testing.ts'

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

const entry = (name: string, changed: Partial<ShardEntry> = {}): ShardEntry => ({
  name,
  shardId: toHex(randomBytes(16)) as ShardId,
  url: `wss://${name}.example`,
  brokerKey: toHex(randomBytes(32)) as PeerKey,
  certificate: null,
  ...changed,
})
const FOR_LONG = { leaseMs: 60_000, isNew: true }
const LAPSED = { leaseMs: -1, isNew: true }
const namesOf = (shards: readonly ShardEntry[]) => shards.map(({ name }) => name)

test('those that are alive see one another, as each tells of itself', async () => {
  const [a, b] = [entry('a'), entry('b', { certificate: Uint8Array.of(1, 2, 3), url: null })]
  expect(namesOf((await keepShard(db, a, FOR_LONG)).shards)).toEqual(['a'])
  const { shards, leaseUntil } = await keepShard(db, b, FOR_LONG)
  expect(Number(leaseUntil)).toBeGreaterThan(Date.now() / 1000)
  expect(shards).toMatchObject([a, { ...b, certificate: expect.anything(), epoch: 1 }])
  expect([...shards[1]!.certificate!]).toEqual([1, 2, 3])
  expect(shards[1]!.leaseMs).toBeGreaterThan(0)
})

test('one whose lease has lapsed is seen by no other, and is back when it says so', async () => {
  const [a, b] = [entry('a'), entry('b')]
  await keepShard(db, a, LAPSED)
  expect(namesOf((await keepShard(db, b, FOR_LONG)).shards)).toEqual(['b'])
  expect((await listShards(db)).map(({ name, leaseMs }) => [name, leaseMs > 0])).toEqual([['a', false], ['b', true]]) // biome-ignore format: short
  await keepShard(db, a, { ...FOR_LONG, isNew: false })
  expect(namesOf((await keepShard(db, b, FOR_LONG)).shards)).toEqual(['a', 'b'])
})

test('a newer process takes the name over, and the older one does not take it back', async () => {
  const [older, newer] = [entry('a'), entry('a')]
  await keepShard(db, older, FOR_LONG)
  await keepShard(db, newer, FOR_LONG)
  const { leaseUntil, shards } = await keepShard(db, older, { ...FOR_LONG, isNew: false })
  expect(leaseUntil).toBeNull()
  expect(shards).toMatchObject([{ shardId: newer.shardId, epoch: 2 }])
  await leaveShards(db, older)
  expect(await listShards(db)).toMatchObject([{ shardId: newer.shardId }])
  await leaveShards(db, newer)
  expect(await listShards(db)).toEqual([])
})

test('a name that was left for a day is forgotten', async () => {
  await keepShard(db, entry('old'), { leaseMs: -86_500_000, isNew: true })
  await keepShard(db, entry('a'), FOR_LONG)
  expect(namesOf(await listShards(db))).toEqual(['a'])
})

test('a mesh is pinned to one name, and let go', async () => {
  const meshId = toHex(randomBytes(16)) as MeshId
  expect(await pinMesh(db, meshId, 'a')).toBe(false)
  await createMesh(db, { meshId, name: 'a mesh' })
  await pinMesh(db, meshId, 'a')
  expect(await pinMesh(db, meshId, 'b')).toBe(true)
  expect((await keepShard(db, entry('a'), FOR_LONG)).pins).toEqual(new Map([[meshId, 'b']]))
  expect(await unpinMesh(db, meshId)).toBe(true)
  expect(await unpinMesh(db, meshId)).toBe(false)
  expect(await listPins(db)).toEqual(new Map())
})
