import { randomBytes } from 'node:crypto'
import { databaseOfFile } from '@sealpost/schema/testing'
import {
  type DeliveryId,
  GROUP_EPOCH_LAST,
  ID_BLOCK,
  type MeshId,
  type PeerKey,
  type PeerNo,
  type PoolId,
  toHex,
} from '@sealpost/std'
import { beforeEach, expect, test } from 'vitest'
import { putPool } from '../groups/groups.ts'
import { makeDevice, newMeshOf, randomBinding, revokeMember } from '../test/members.ts'
import {
  deleteOldDeadLetters,
  listDeadLetters,
  purgeDeadLetters,
  redriveDeadLetters,
  trimDeadLetters,
} from './dead-letters.ts'

const db = await databaseOfFile({ connections: 2 })
let meshId: MeshId
const [alice, bob] = ['aa', 'bb'].map((byte) => byte.repeat(32) as PeerKey) as [PeerKey, PeerKey]
let numbers: number[]

beforeEach(async () => {
  await db.run((sql) => sql.unsafe('truncate dead_letter, message_queue'))
  ;({ meshId, numbers } = await newMeshOf(db, [randomBinding(alice), randomBinding(bob)]))
})

interface Death {
  id?: number
  reason?: 'expired' | 'strikes'
  diedSecondsAgo?: number
  sender?: number
  recipient?: number
}

async function die({
  id = 1,
  reason = 'strikes',
  diedSecondsAgo = 0,
  sender = numbers[0]!,
  recipient = numbers[1]!,
}: Death = {}): Promise<void> {
  const envelope = reason === 'expired' ? null : Buffer.from('sealed')
  await db.run(
    (sql) => sql`
      insert into dead_letter (mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at,
        died_at, reason, envelope)
      values (${meshId}, ${recipient}, ${id}, 1, ${sender}, 21, 20, gen_random_uuid(), '2026-01-02 03:04:05Z',
        clock_timestamp() - make_interval(secs => ${diedSecondsAgo}), ${reason}, ${envelope})`,
  )
}

const queued = () =>
  db.run(
    (sql) => sql<{ id: number; strikes: number; attempts: number; leased: boolean; isOfAnHour: boolean }[]>`
      select id, strikes, attempts, lease_epoch is not null as leased,
        expires_at - clock_timestamp() between interval '1 minute' and interval '1 hour' as "isOfAnHour", enqueued_at
      from message_queue order by id`,
  )
const idsOf = async () => (await listDeadLetters(db, { meshId }, 100)).map(({ id }) => id as number)

const trim = (bounds: { countMax?: number; bytesMax?: number; youngerThanSeconds?: number }) =>
  trimDeadLetters(db, { countMax: 100, bytesMax: 1_000, youngerThanSeconds: 60, ...bounds })

test('a mailbox keeps the newest dead letters of a sender, within limits of count and bytes', async () => {
  for (const id of [1, 2, 3, 4]) await die({ id, diedSecondsAgo: 10 - id })
  await die({ id: 5, diedSecondsAgo: 50, sender: numbers[1]! })
  expect(await trim({})).toBe(0)
  expect(await trim({ countMax: 3 })).toBe(1)
  expect((await idsOf()).sort()).toEqual([2, 3, 4, 5])
  expect(await trim({ bytesMax: 12 })).toBe(1) // 6 bytes per dead letter
  expect(await trim({ bytesMax: 1 })).toBe(1)
  expect((await idsOf()).sort()).toEqual([4, 5])
})

test('a user and its devices count as one sender in a mailbox', async () => {
  const [person, device] = numbers as [PeerNo, PeerNo]
  await makeDevice(db, meshId, device, person)
  for (const id of [1, 2, 3, 4]) await die({ id, diedSecondsAgo: 10 - id, sender: id % 2 ? person : device })
  expect(await trim({ countMax: 3 })).toBe(1)
  expect((await idsOf()).sort()).toEqual([2, 3, 4])
})

test('only mailboxes with a new dead letter are trimmed', async () => {
  await die({ id: 1, diedSecondsAgo: 100 })
  await die({ id: 2, diedSecondsAgo: 90 })
  expect(await trim({ countMax: 1 })).toBe(0)
  await die({ id: 3 })
  expect(await trim({ countMax: 1 })).toBe(2)
})

test('dead letters are listed with peers, time and reason, newest first', async () => {
  await die({ id: 1, reason: 'expired', diedSecondsAgo: 60 })
  await die({ id: 2 })
  const letters = await listDeadLetters(db, {}, 10)
  expect(letters).toMatchObject([
    { id: 2, meshId, meshName: 'a mesh', sender: alice, recipient: bob, reason: 'strikes', bytes: 6, attempts: 21 },
    { id: 1, reason: 'expired', bytes: null, enqueuedAtMs: Date.parse('2026-01-02T03:04:05Z') },
  ])
  expect(letters[0]!.diedAtMs - letters[1]!.diedAtMs).toBeGreaterThan(59_000)
  expect(await listDeadLetters(db, {}, 1)).toHaveLength(1)
})

test('every field of a filter narrows the result', async () => {
  await die({ id: 1, reason: 'expired', diedSecondsAgo: 60 })
  await die({ id: 2 })
  const count = async (filter: Parameters<typeof listDeadLetters>[1]) => (await listDeadLetters(db, filter, 9)).length
  expect(await count({ meshId })).toBe(2)
  expect(await count({ meshId: toHex(randomBytes(16)) as MeshId })).toBe(0)
  expect(await count({ recipient: bob })).toBe(2)
  expect(await count({ recipient: alice })).toBe(0)
  expect(await count({ reason: 'expired' })).toBe(1)
  expect(await count({ olderThanSeconds: 30 })).toBe(1)
  expect(await count({ ids: [2 as DeliveryId, 3 as DeliveryId] })).toBe(1)
  expect(await count({ ids: [] })).toBe(0)
})

test('a redriven delivery is queued once, under a new id, without failed attempts and with one attempt', async () => {
  await die({ id: 7 })
  await die({ id: 8 })
  const [{ block }] = (await db.run((sql) => sql`select nextval('delivery_block')::float8 as block`)) as any
  expect(await redriveDeadLetters(db, { ids: [7 as DeliveryId] }, { ttlSeconds: 3600 })).toEqual({
    ...{ redriven: 1, left: 0, refused: [] },
  })
  expect(await queued()).toMatchObject([
    { id: (block + 1) * ID_BLOCK + 1, strikes: 0, attempts: 1, leased: false, isOfAnHour: true },
  ])
  expect(await idsOf()).toEqual([8])
})

const ids = (...all: number[]) => ({ ids: all as DeliveryId[] })

test('a dead letter without envelope or recipient stays, and the result has the reason', async () => {
  await die({ id: 1, reason: 'expired' })
  await die({ id: 2 })
  await revokeMember(db, meshId, bob)
  const refused = [
    { id: 1, reason: 'not_kept' },
    { id: 2, reason: 'recipient_revoked' },
  ]
  expect(await redriveDeadLetters(db, {}, { ttlSeconds: 60 })).toEqual({ redriven: 0, left: 2, refused })
  expect(await queued()).toEqual([])
})

test('an id without a matching dead letter is unknown', async () => {
  await die({ id: 1 })
  await die({ id: 2 })
  const filter = { ...ids(1, 7, 7, 2), olderThanSeconds: 0 }
  expect(await redriveDeadLetters(db, filter, { ttlSeconds: 60 })).toEqual({
    ...{ redriven: 2, left: 0, refused: [{ id: 7, reason: 'unknown' }] },
  })
  await die({ id: 3 })
  expect(await redriveDeadLetters(db, { ...ids(3), reason: 'rejected' }, { ttlSeconds: 60 })).toEqual({
    ...{ redriven: 0, left: 0, refused: [{ id: 3, reason: 'unknown' }] },
  })
})

test('a delivery of an ended pool stays a dead letter', async () => {
  const poolId = 'cc'.repeat(32) as PoolId
  const owner = { meshId, peer: numbers[0]! as PeerNo }
  const put = (epoch: number, members: PeerKey[]) =>
    putPool(db, owner, { poolId, epoch, statement: new Uint8Array([epoch & 0xff]), members })
  expect(await put(1, [bob])).toBe('done')
  const [pool] = await db.run(
    (sql) => sql<{ no: number }[]>`select peer_no as no from member where mesh_id = ${meshId} and is_pool`,
  )
  await die({ id: 1, recipient: pool!.no })
  expect(await put(GROUP_EPOCH_LAST, [])).toBe('done')
  expect(await redriveDeadLetters(db, {}, { ttlSeconds: 60 })).toEqual({
    ...{ redriven: 0, left: 1, refused: [{ id: 1, reason: 'pool_ended' }] },
  })
})

test('a locked dead letter is busy, and is redriven later', async () => {
  await die({ id: 1 })
  await die({ id: 2 })
  const redrive = () => redriveDeadLetters(db, ids(1, 2), { ttlSeconds: 60 })
  await db.run((sql) =>
    sql.begin(async (other) => {
      await other`select from dead_letter where id = 1 for update`
      expect(await redrive()).toEqual({ redriven: 1, left: 1, refused: [{ id: 1, reason: 'busy' }] })
    }),
  )
  expect(await redriveDeadLetters(db, ids(1), { ttlSeconds: 60 })).toMatchObject({ redriven: 1, refused: [] })
})

test('without ids in the filter, the first 1000 refused ones are listed', async () => {
  await die({ id: 1, reason: 'expired' })
  await db.run(
    (sql) => sql`
      insert into dead_letter (mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at, reason)
      select mesh_id, recipient, 1 + n, priority, sender, attempts, strikes, gen_random_uuid(), enqueued_at, reason
      from dead_letter, generate_series(1, 1200) as n`,
  )
  const { left, refused } = await redriveDeadLetters(db, {}, { ttlSeconds: 60 })
  expect([left, refused.length, refused[0], refused.at(-1)!.id]).toEqual([
    1201,
    1000,
    { id: 1, reason: 'not_kept' },
    1000,
  ])
  const named = ids(...Array.from({ length: 1100 }, (_, n) => n + 1))
  expect((await redriveDeadLetters(db, named, { ttlSeconds: 60 })).refused).toHaveLength(1100)
})

test('more than a batch is redriven, each once, in the original order', async () => {
  await die({ id: 1 })
  await db.run(
    (sql) => sql`
      insert into dead_letter (mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at,
        reason, envelope)
      select mesh_id, recipient, 2000 - n, priority, sender, attempts, strikes, gen_random_uuid(), enqueued_at, reason,
        int4send(2000 - n) from dead_letter, generate_series(1, 1200) as n`,
  )
  expect(await redriveDeadLetters(db, {}, { ttlSeconds: 60 })).toEqual({ redriven: 1201, left: 0, refused: [] })
  const rows = await db.run(
    (sql) => sql<{ envelope: Buffer }[]>`select envelope from message_queue order by id offset 1`,
  )
  const former = rows.map(({ envelope }) => envelope.readInt32BE())
  expect(former).toEqual(Array.from({ length: 1200 }, (_, n) => 800 + n))
})

test('a purge deletes what the filter matches and nothing else', async () => {
  await die({ id: 1, diedSecondsAgo: 60 })
  await die({ id: 2 })
  expect(await purgeDeadLetters(db, { olderThanSeconds: 30 })).toBe(1)
  expect(await idsOf()).toEqual([2])
  expect(await purgeDeadLetters(db, {})).toBe(1)
  expect(await idsOf()).toEqual([])
})

test('old dead letters are deleted in batches', async () => {
  for (let id = 1; id <= 5; id++) await die({ id, reason: 'expired', diedSecondsAgo: id * 100 })
  const forget = () => deleteOldDeadLetters(db, { olderThanSeconds: 250, max: 2 })
  expect([await forget(), await forget(), await forget()]).toEqual([2, 1, 0])
  expect((await listDeadLetters(db, {}, 10)).map(({ id }) => id)).toEqual([1, 2])
})
