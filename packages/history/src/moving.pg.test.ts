/** Tests that rows written while a mover freezes the mesh are either moved or refused. */
import { moveMesh } from '@sealpost/mesh-move'
import { type Database, openDatabase } from '@sealpost/pg'
import { type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import type { AttachmentId } from '@sealpost/std'
import { type AttachmentSpec, createAttachment, putChunk } from '@sealpost/store'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { Spaces } from './spaces.ts'
import { GROUP, MESH, peerKeyOf, SpaceStage, termsOf } from './test/spaces.ts'

const FILE = '3a'.repeat(16) as AttachmentId

let stage: SpaceStage
let elsewhere: ScratchDatabase
beforeEach(async () => {
  stage = await SpaceStage.open()
  elsewhere = await scratchDatabase()
})
afterEach(async () => {
  await stage.close()
  await elsewhere.drop()
})

const terms = (): AttachmentSpec => ({
  ...{ meshId: MESH, id: FILE, owner: stage.ann, to: [peerKeyOf(2)], bytes: 10, chunkBytes: 4096 },
  ...{ store: 'postgres', keepSeconds: 60, finishSeconds: 60 },
})
const chunk = { chunkNo: 0, hash: new Uint8Array(32), content: new Uint8Array(10) }

const NEWS = {
  space: (db: Database) => new Spaces(db).put(stage.asker(stage.ann), termsOf({ spaceId: GROUP })),
  attachment: (db: Database) => createAttachment(db, terms(), null),
  attachment_chunk: (db: Database) => putChunk(db, { meshId: MESH, id: FILE }, chunk),
}
type Table = keyof typeof NEWS

const copy = () => {
  const end = (cell: string, { url }: { url: string }) => ({ cell, databaseUrl: url })
  const onPhase = (phase: string) => {
    if (phase === 'copied') throw new Error('copied')
  }
  const moved = moveMesh({ meshId: MESH, from: end('a', stage), to: end('b', elsewhere), onPhase })
  return expect(moved).rejects.toThrow('copied')
}

/** Resolves when this many statements wait for a lock. */
async function untilWaiting(count: number): Promise<void> {
  const [row] = await stage.admin.run(
    (sql) => sql<{ n: number }[]>`select count(*)::int as n from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`,
  )
  if (row!.n < count) return untilWaiting(count)
}

async function around(begin: (db: Database) => Promise<unknown>, during: () => Promise<void>): Promise<void> {
  const db = await openDatabase(stage.url, { ...unhurried, connections: 1 })
  const run = (statement: string) => db.run((sql) => sql.unsafe(statement).simple())
  await run('begin')
  await begin(db)
  await during().finally(() => run('commit'))
  await db.close()
}

async function arrived(table: Table): Promise<number> {
  const there = await openDatabase(elsewhere.url, { ...unhurried, connections: 1 })
  const [row] = await there.run((sql) => sql.unsafe<{ n: number }[]>(`select count(*)::int as n from ${table}`))
  await there.close()
  return row!.n
}

describe.each<Table>(['space', 'attachment', 'attachment_chunk'])('a new row of %s', (table) => {
  beforeEach(async () => {
    if (table === 'attachment_chunk') await NEWS.attachment(stage.asking)
  })

  test('that began before the freeze moves along', async () => {
    let copied: Promise<unknown> | undefined
    await around(NEWS[table], async () => {
      copied = copy()
      await untilWaiting(1)
    })
    await copied
    expect(await arrived(table)).toBe(1)
  })

  test('that begins during the freeze is refused', async () => {
    let copied: Promise<unknown> | undefined
    let asked: Promise<unknown> | undefined
    // Resolves when the freeze has changed the mesh and waits for a session.
    const held = (db: Database) => db.run((sql) => sql`select from session where mesh_id = ${MESH}::uuid for update`)
    await around(held, async () => {
      copied = copy()
      await untilWaiting(1)
      asked = NEWS[table](stage.asking).catch((error) => error)
      await untilWaiting(2)
    })
    expect(await asked).toMatchObject({ code: 'db_not_executed', retryable: true })
    await copied
    expect(await arrived(table)).toBe(0)
  })
})
