import { databaseOfFile } from '@sealpost/schema/testing'
import type { EnvelopeId, MeshId, PeerKey, PeerNo } from '@sealpost/std'
import { beforeEach, expect, test } from 'vitest'
import { newMeshOf, randomBinding } from '../test/members.ts'
import { findSent } from './sent.ts'

const db = await databaseOfFile({ connections: 1 })
const [alice, bob] = ['aa', 'bb'].map((byte) => byte.repeat(32) as PeerKey) as [PeerKey, PeerKey]
const ID = '019b76da80007000800000000000000a' as EnvelopeId
const SECOND = Math.floor(Number.parseInt(ID.slice(0, 12), 16) / 1024)

let meshId: MeshId
let sender: PeerNo
let recipient: PeerNo

beforeEach(async () => {
  await db.run((sql) => sql.unsafe('truncate dead_letter, message_queue, dedupe_ledger, delayed_delivery'))
  const made = await newMeshOf(db, [randomBinding(alice), randomBinding(bob)])
  meshId = made.meshId
  ;[sender, recipient] = made.numbers as [PeerNo, PeerNo]
  await db.run(
    (sql) => sql`
      insert into dedupe_ledger (mesh_id, sender, second, first_id, keep_until, envelope_ids, fingerprints, ids, recipients,
        priorities)
      values (${meshId}, ${sender}, ${SECOND}, 7, now() + interval '1 day', ${`{${ID}}`}::uuid[], '{0}', '{7}',
        ${`{${recipient}}`}::int[], '{1}')`,
  )
})

const find = async (peer = sender) => (await findSent(db, { meshId, peer }, [ID]))[0]

/** Queues the delivery, without a lease. */
const queue = () =>
  db.run(
    (sql) => sql`
      insert into message_queue (mesh_id, recipient, priority, id, sender, strikes, envelope_id, expires_at, envelope)
      values (${meshId}, ${recipient}, 1, 7, ${sender}, 2, ${ID}::uuid, now() + interval '1 hour', '')`,
  )

test('the ledger leads to a delivery that waits, that is held, or that pauses after a failed attempt', async () => {
  expect(await find()).toMatchObject({ status: 'gone', recipient: bob, enqueuedAtMs: null, failedAttempts: 0 })
  await queue()
  expect(await find()).toMatchObject({ envelopeId: ID, status: 'waiting', dueAtMs: null, failedAttempts: 2 })
  await db.run((sql) => sql`update message_queue set lease_epoch = 0, lease_until = now() + interval '30 s'`)
  expect(await find()).toMatchObject({ status: 'pushed' })
  await db.run((sql) => sql`update session set epoch = 4 where mesh_id = ${meshId} and peer_no = ${recipient}`)
  expect(await find()).toMatchObject({ status: 'waiting', dueAtMs: null }) // a later session has voided the lease
  await db.run((sql) => sql`update message_queue set lease_epoch = null`)
  const { dueAtMs, expiresAtMs } = (await find())!
  expect(dueAtMs).toBeGreaterThan(Date.now())
  expect(expiresAtMs).toBeGreaterThan(dueAtMs!)
  await db.run((sql) => sql`update message_queue set lease_until = now() - interval '1 s', lease_epoch = 4`)
  expect(await find()).toMatchObject({ status: 'waiting', dueAtMs: null })
})

test('a delayed message and a dead letter are found, and only by the peer that sent them', async () => {
  await db.run(
    (sql) => sql`
      insert into delayed_delivery (mesh_id, due_at, id, recipient, priority, sender, envelope_id, enqueued_at, expires_at,
        envelope)
      values (${meshId}, now() + interval '1 hour', 7, ${recipient}, 1, ${sender}, ${ID}::uuid, now(),
        now() + interval '2 hours', '')`,
  )
  expect(await find()).toMatchObject({ status: 'delayed', death: null })
  await db.run((sql) => sql`delete from delayed_delivery`)
  await db.run(
    (sql) => sql`
      insert into dead_letter (mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at, reason,
        detail)
      values (${meshId}, ${recipient}, 7, 1, ${sender}, 1, 0, ${ID}::uuid, now(), 'rejected', 'a secret reason')`,
  )
  expect(await find()).toMatchObject({ status: 'dead', death: 'rejected' })
  expect(JSON.stringify(await find())).not.toContain('secret')
  expect(await find(recipient)).toBe(undefined)
})

test('the search does not depend on the number of other deliveries', async () => {
  await db.run(
    (sql) => sql`
      insert into message_queue (mesh_id, recipient, priority, id, sender, envelope_id, expires_at, envelope)
      select ${meshId}, ${recipient}, 1, n, ${sender}, gen_random_uuid(), now() + interval '1 hour', ''
      from generate_series(100, 20_100) n`,
  )
  await queue()
  await db.run((sql) => sql.unsafe('analyze message_queue'))
  /** Returns the number of rows of the queue that statements have read so far. */
  const rowsRead = async () => {
    await db.run((sql) => sql`select pg_stat_force_next_flush()`)
    const [row] = await db.run(
      (sql) => sql<{ rows: number }[]>`
        select (seq_tup_read + idx_tup_fetch)::float8 as rows from pg_stat_user_tables where relname = 'message_queue'`,
    )
    return row!.rows
  }
  const before = await rowsRead()
  expect(await find()).toMatchObject({ status: 'waiting' })
  const between = await rowsRead()
  expect(between - before).toBeLessThan(20)
  await db.run((sql) => sql`select count(*) from message_queue where strikes = 5`)
  expect((await rowsRead()) - between).toBeGreaterThan(20_000) // otherwise, the numbers would prove nothing
})
