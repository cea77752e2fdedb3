import { type Database, openDatabase } from '@sealpost/pg'
import { type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { listAudit } from '../operators/operators.ts'
import { readDatabaseHealth } from './database-stats.ts'
import { beginIncarnation, currentIncarnation } from './origin.ts'

let scratch: ScratchDatabase
let db: Database
beforeAll(async () => {
  scratch = await scratchDatabase()
  db = await openDatabase(scratch.url, { ...unhurried, connections: 3 })
})
afterAll(async () => {
  await db.close()
  await scratch.drop()
})

const nextBlock = async () => {
  const [row] = await db.run((sql) => sql<{ block: number }[]>`select nextval('delivery_block')::float8 as block`)
  return row!.block
}

test('the incarnation stays while the server does', async () => {
  const first = await currentIncarnation(db)
  const block = await nextBlock()
  expect(first).toMatch(/^[0-9a-f]{32}$/)
  expect(await currentIncarnation(db)).toBe(first)
  expect((await readDatabaseHealth(db)).origin?.incarnation).toBe(first)
  expect(await nextBlock()).toBe(block + 1)
})

test('another server or timeline begins one new incarnation, with higher ids than all before', async () => {
  const before = await currentIncarnation(db)
  const block = await nextBlock()
  await db.run((sql) => sql`update cluster set origin = 'elsewhere/00000001'`)
  const [first, second] = await Promise.all([currentIncarnation(db), currentIncarnation(db)])
  expect(first).not.toBe(before)
  expect(second).toBe(first)
  const after = await nextBlock()
  expect(after).toBeGreaterThan(block + 1_000_000)
  expect(after).toBeLessThan(block + 1_100_000)
})

test('an operator may begin a new incarnation', async () => {
  const before = await currentIncarnation(db)
  const after = await beginIncarnation(db)
  expect(after).not.toBe(before)
  expect(await currentIncarnation(db)).toBe(after)
  expect(await listAudit(db, { limit: 9 })).toMatchObject([{ action: 'database.restored', subject: after }])
})

test('a held snapshot is reported with its age until it is released', async () => {
  const holder = await openDatabase(scratch.url, { ...unhurried, connections: 1 })
  await holder.run((sql) => sql.unsafe('begin isolation level repeatable read; select 1').simple())
  await expect.poll(async () => (await readDatabaseHealth(db)).snapshotSeconds).toBeGreaterThan(0.05)
  await holder.close()
  await expect.poll(async () => (await readDatabaseHealth(db)).snapshotSeconds).toBe(0)
})
