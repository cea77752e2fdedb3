import { spawn } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { openDatabase } from '@sealpost/pg'
import { emptyDatabase, type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { migrate } from './migrate.ts'

const root = fileURLToPath(new URL('../../..', import.meta.url))
let scratch: ScratchDatabase

beforeEach(async () => {
  scratch = await emptyDatabase()
})
afterEach(() => scratch.drop())

async function state() {
  const db = await openDatabase(scratch.url, { ...unhurried, connections: 1 })
  const [row] = await db.run(
    (sql) => sql<{ applied: number; distinct: number; clusters: number }[]>`
      select (select count(*)::int from drizzle.__drizzle_migrations) as applied,
             (select count(distinct hash)::int from drizzle.__drizzle_migrations) as distinct,
             (select count(*)::int from cluster) as clusters`,
  )
  await db.close()
  return row
}

function drizzleKit(): Promise<{ code: number | null; output: string }> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, ['--bun', 'drizzle-kit', 'migrate'], {
      cwd: root,
      env: { ...process.env, DATABASE_URL: scratch.url },
    })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (bytes) => (output += bytes))
    child.on('close', (code) => resolve({ code, output }))
  })
}

const migrations = readdirSync(new URL('../migrations', import.meta.url)).filter((name) => name.endsWith('.sql')).length
const whole = { applied: migrations, distinct: migrations, clusters: 1 }

test('a second migration changes nothing', async () => {
  await migrate(scratch.url)
  expect(await state()).toEqual(whole)
  await migrate(scratch.url)
  expect(await state()).toEqual(whole)
})

test('four brokers may start at once on an empty database', async () => {
  await Promise.all(Array.from({ length: 4 }, () => migrate(scratch.url)))
  expect(await state()).toEqual(whole)
})

test('drizzle-kit finds nothing to do after migrate', async () => {
  await migrate(scratch.url)
  const { code, output } = await drizzleKit()
  expect(code, output).toBe(0)
  expect(await state()).toEqual(whole)
})

test('migrate finds nothing to do after drizzle-kit', async () => {
  const { code, output } = await drizzleKit()
  expect(code, output).toBe(0)
  expect(await state()).toEqual(whole)
  await migrate(scratch.url)
  expect(await state()).toEqual(whole)
})

test('a database with unknown migrations is refused and left unchanged', async () => {
  await migrate(scratch.url)
  const db = await openDatabase(scratch.url, { ...unhurried, connections: 1 })
  await db.run((sql) => sql`update drizzle.__drizzle_migrations set hash = 'earlier', created_at = 1`)
  await expect(migrate(scratch.url)).rejects.toMatchObject({ code: 'db_version_unknown' })
  const rows = await db.run((sql) => sql<{ hash: string }[]>`select hash from drizzle.__drizzle_migrations`)
  expect(new Set(rows.map(({ hash }) => hash))).toEqual(new Set(['earlier']))
  await db.close()
})

test('a database of a newer version is accepted', async () => {
  await migrate(scratch.url)
  const db = await openDatabase(scratch.url, { ...unhurried, connections: 1 })
  await db.run(
    (sql) => sql`insert into drizzle.__drizzle_migrations (hash, created_at) values ('newer', 4000000000000)`,
  )
  await migrate(scratch.url)
  await db.close()
})

test('a failed migration is rolled back and reports the reason', async () => {
  const db = await openDatabase(scratch.url, { ...unhurried, connections: 1 })
  await db.run((sql) => sql`create table mesh (secret text)`)
  await expect(migrate(scratch.url)).rejects.toMatchObject({
    code: 'db_migration_failed',
    message: 'A migration failed and was rolled back (42P07: relation "mesh" already exists)',
  })
  const [row] = await db.run((sql) => sql`select to_regclass('cluster') as oid`)
  expect(row?.oid).toBeNull()
  await db.close()
})
