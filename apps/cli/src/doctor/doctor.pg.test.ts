import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { TlsServer } from '@sealpost/embedded-pg/testing-tls'
import { type Database, openDatabase } from '@sealpost/pg'
import { type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import { isPgBouncerMissing, PgBouncer, STARTUP_PARAMETERS } from '@sealpost/pg/testing-pgbouncer'
import { scratchDatabase } from '@sealpost/schema/testing'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { jsonLinesOf, runHere } from '../test/cli.ts'
import type { DoctorCheck } from './doctor.ts'

let folder: string
let scratch: ScratchDatabase
let db: Database

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-cli-test-'))
  scratch = await scratchDatabase()
  db = await openDatabase(scratch.url, { connections: 2, ...unhurried })
})
afterEach(async () => {
  await db.close()
  await scratch.drop()
  await rm(folder, { recursive: true })
})

async function examine(env: Record<string, string> = {}) {
  const words = ['doctor', '--database', '--json']
  const { code, out } = await runHere(words, { SEALPOST_HOME: folder, DATABASE_URL: scratch.url, ...env })
  const checks: DoctorCheck[] = jsonLinesOf({ stdout: out })
  return { code, checks: Object.fromEntries(checks.map((check) => [check.name, check])) }
}

test('a healthy database has no fault', async () => {
  const { code, checks } = await examine()
  expect(Object.values(checks).filter(({ outcome }) => outcome === 'failed')).toEqual([])
  expect(code).toBe(0)
  const names = [
    'settings',
    'file limit',
    'durability',
    'db clock',
    'autovacuum',
    'dead rows',
    'snapshots',
    'moves',
    'prepared',
    'indexes',
  ]
  expect(Object.keys(checks)).toEqual([...names, 'claim plan', 'pooler', 'encryption', 'connections', 'statements'])
  expect(checks['claim plan']).toMatchObject({ outcome: 'ok', detail: 'the claim statement uses its indexes' })
})

test('each fault is named with its remedy', async () => {
  await db.run((sql) => sql`drop index member_peer_key`)
  await db.run((sql) => sql`alter table message_queue drop constraint message_queue_mesh_id_recipient_priority_id_pk`)
  const { code, checks } = await examine({ LIMITS: 'perhaps' })
  expect(code).not.toBe(0)
  expect(checks.settings!.detail).toContain('LIMITS must be on or off')
  expect(checks.indexes).toMatchObject({ outcome: 'failed' })
  expect(checks.indexes!.detail).toMatch(
    /the primary key of message_queue.*member_peer_key|member_peer_key.*the primary key of message_queue/,
  )
  expect(checks['claim plan']).toMatchObject({ outcome: 'failed' })
})

test('prepared sends that no broker takes are reported', async () => {
  expect((await examine()).checks.prepared).toMatchObject({ outcome: 'ok', detail: '0 prepared sends are waiting' })
  await db.run(
    (sql) => sql`insert into prepared_send (mesh_id, sender, recipient, priority, envelope_id, queued_at, expires_at)
      values (gen_random_uuid(), '', '', 1, gen_random_uuid(), now() - interval '90 seconds', now() + interval '1 hour')`,
  )
  const { outcome, detail } = (await examine()).checks.prepared!
  expect(outcome).toBe('warning')
  expect(detail).toMatch(/^1 prepared sends are waiting, the oldest for \d+ s: .*PREPARED_SENDS=on/)
})

test("the server's own statement times are reported if it records them", async () => {
  const [loaded] = await db.run(
    (sql) => sql<{ libraries: string }[]>`select current_setting('shared_preload_libraries') as libraries`,
  )
  expect((await examine()).checks.statements!.outcome).toBe('skipped')
  if (!loaded!.libraries.includes('pg_stat_statements')) return // the run's server does not preload it
  await db.run((sql) => sql`create extension pg_stat_statements`)
  for (let i = 0; i < 20; i++) await db.run((sql) => sql`select pg_sleep(0.001), 'so that it is known'`)
  const { outcome, detail } = (await examine()).checks.statements!
  expect(outcome).not.toBe('skipped')
  expect(detail).toMatch(/p95 at most [\d.]+ ms .* mean [\d.]+ ms, maximum [\d.]+ ms, \d+ calls: /)
})

const poolerTest = isPgBouncerMissing ? 'a pooler is named: there is no pgbouncer here' : 'a pooler is named'
test.skipIf(isPgBouncerMissing)(poolerTest, async () => {
  const pooler = await PgBouncer.start(scratch.url, { mode: 'session', ignored: STARTUP_PARAMETERS })
  const { code, checks } = await examine({ DATABASE_URL: pooler.url })
  await pooler.stop()
  expect(code).not.toBe(0)
  expect(Object.keys(checks)).toEqual(['settings', 'file limit', 'pooler'])
  expect(checks.pooler).toMatchObject({ outcome: 'failed', detail: expect.stringContaining('PgBouncer') })
})

test("the report names a connection's encryption, and what of the server is verified", async () => {
  const server = await TlsServer.start()
  const sslrootcert = server.file('ca.crt')
  const detailOf = async (parameters: Record<string, string>) => {
    const { checks } = await examine({ DATABASE_URL: server.url('free', 'localhost', parameters) })
    return checks.encryption
  }
  try {
    expect(await detailOf({})).toMatchObject({
      outcome: 'ok',
      detail: 'the connection is not encrypted, and stays on this machine',
    })
    expect(await detailOf({ sslmode: 'require' })).toMatchObject({
      detail: expect.stringMatching(/^TLSv1\.3, the server's certificate is not verified/),
    })
    expect(await detailOf({ sslmode: 'verify-full', sslrootcert })).toEqual({
      ...{ name: 'encryption', outcome: 'ok', detail: 'TLSv1.3, the certificate is verified' },
    })
  } finally {
    await server.stop()
  }
})
