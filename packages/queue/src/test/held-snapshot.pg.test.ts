/**
 * Tests that a commit's updates do not walk over dead rows, which vacuum can't remove while a session holds a snapshot.
 */
import { type Database, openDatabase } from '@sealpost/pg'
import type { ScratchDatabase } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { SESSION } from '../sql/sql.ts'

const SENDERS = 100
const MOVES = 120

let scratch: ScratchDatabase
let holding: Database
let db: Database

beforeAll(async () => {
  scratch = await scratchDatabase()
  const settings = { ...SESSION, idle_in_transaction_session_timeout: 0 }
  const open = () => openDatabase(scratch.url, { connections: 1, settings, statementTimeoutMs: 60_000 })
  holding = await open()
  db = await open()
})
afterAll(async () => {
  await holding.close()
  await db.close()
  await scratch.drop()
})

test("a sender's mark moves as cheaply after many moves", async () => {
  const meshId = `'${'1a'.repeat(16)}'::uuid`
  await execute(
    db,
    `insert into mesh (mesh_id, name) values (${meshId}, 'a mesh');
    insert into member (mesh_id, peer_key, box_key, box_epoch, binding_not_after_ms, binding_signature)
      select ${meshId}, sha256(n::text::bytea), sha256(''), 1, 1, sha512('') from generate_series(1, ${SENDERS}) n;
    insert into sender_mark (mesh_id, sender) select mesh_id, peer_no from member`,
  )
  await execute(holding, 'begin isolation level repeatable read; select count(*) from mesh')
  const moves = `for n in 1..${MOVES} loop update sender_mark set version = version + 1; commit; end loop`
  await execute(db, `do $$ declare n int; begin ${moves}; end $$`)
  // Updates all marks, including one whose page is full.
  const places = `(select array_agg(ctid) from sender_mark)`
  const plan = await execute(
    db,
    `explain (analyze, buffers, timing off, costs off)
      update sender_mark set version = version + 1 where ctid = any (${places}::tid[])`,
  )
  const pages = Number(/shared hit=(\d+)/.exec(plan.map((row) => row['QUERY PLAN']).join())?.[1] ?? 0)
  expect(pages).toBeGreaterThan(0)
  expect(pages / SENDERS).toBeLessThan(12)
  await execute(holding, 'rollback')
})

async function execute(database: Database, statement: string): Promise<{ 'QUERY PLAN': string }[]> {
  return [...(await database.run((sql) => sql.unsafe<{ 'QUERY PLAN': string }[]>(statement).simple()))]
}
