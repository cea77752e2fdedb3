import { scratchDatabase } from '@sealpost/schema/testing'
import postgres from 'postgres'
import { expect, test } from 'vitest'
import { holdSnapshot, SNAPSHOT_HOLDER } from './postgres.ts'

test('a held snapshot keeps vacuum from removing deleted rows, until it is released', async () => {
  const database = await scratchDatabase()
  const sql = postgres(database.url, { max: 1, onnotice: () => undefined })
  const pages = async () => Number((await sql`select pg_relation_size('litter') / 8192 as pages`)[0]!.pages)
  try {
    await sql`create table litter as select from generate_series(1, 1000)`
    const held = await holdSnapshot(database.url)
    await sql`delete from litter`
    await sql`vacuum litter`
    expect(await pages()).toBeGreaterThan(0)
    expect(await sql`select from pg_stat_activity where application_name = ${SNAPSHOT_HOLDER}`).toHaveLength(1)

    await held.release()
    // Polled, because other sessions' reads hold snapshots too.
    await expect
      .poll(async () => {
        await sql`vacuum litter`
        return pages()
      })
      .toBe(0)
  } finally {
    await sql.end()
    await database.drop()
  }
})
