import { randomBytes } from 'node:crypto'
import { type Database, openDatabase } from '@sealpost/pg'
import { emptyDatabase, type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import { type MeshId, type PeerKey, type ShardId, toHex } from '@sealpost/std'
import {
  addMembers,
  adoptRoot,
  awaitOrigin,
  backfillLogs,
  claimPrekey,
  createMesh,
  listLogEntries,
  publishPrekeys,
  readDatabaseHealth,
  revokePeer,
} from '@sealpost/store'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { migrate } from './migrate.ts'
import { roleStatements } from './roles.ts'
import { loginsOf, type RoleLogins } from './test/roles.ts'

let scratch: ScratchDatabase
let logins: RoleLogins
let broker: Database
let admin: Database
let monitor: Database
let backup: Database

beforeAll(async () => {
  scratch = await emptyDatabase()
  await migrate(scratch.url)
  logins = await loginsOf(scratch.url)
  broker = await openDatabase(logins.broker, { ...unhurried, connections: 1 })
  admin = await openDatabase(logins.admin, { ...unhurried, connections: 1 })
  monitor = await openDatabase(logins.monitor, { ...unhurried, connections: 1 })
  backup = await openDatabase(logins.backup, { ...unhurried, connections: 1 })
})
afterAll(async () => {
  for (const db of [broker, admin, monitor, backup]) await db.close()
  await logins.drop()
  await scratch.drop()
})

const codeOf = (db: Database, statement: string) =>
  db
    .run((sql) => sql.unsafe(statement))
    .then(
      () => 'done',
      (error) => error.sqlstate,
    )
const DENIED = '42501'

describe('a broker', () => {
  test.each([
    'drop table message_queue',
    'truncate message_queue',
    'alter table message_queue add column more int',
    'create table public.mine (one int)',
    'create temporary table mine (one int)',
    "update message_queue set envelope = ''",
    'update message_queue set sender = 1',
    'update dead_letter set recipient = 1',
    'select envelope from dead_letter',
    'select detail from dead_letter',
    'select * from dead_letter',
    "update mesh set name = 'mine'",
    'delete from member',
    "update member set role = 'admin'",
    'delete from cluster',
    'update cluster set origin = null',
    "select setval('delivery_block', 1)",
    "select take_origin('elsewhere', false)",
    'delete from log_entry',
    "update log_node set hash = ''",
    'insert into mesh_log select mesh_id from mesh',
    "select log_append(gen_random_uuid(), 1, '')",
    'alter table member disable trigger log_change',
    'delete from history_event',
    "update history_event set record = ''",
    'delete from history_event_default',
    'drop table history_event_default',
    'delete from drizzle.__drizzle_migrations',
    'create role mine',
    "select pg_read_file('postgresql.conf')",
  ])('may not: %s', async (statement) => {
    expect(await codeOf(broker, statement)).toBe(DENIED)
  })

  test('reads the schema version, the incarnation and the health', async () => {
    await expect(migrate(logins.broker)).resolves.toBeUndefined()
    const decided = await awaitOrigin(broker, 'ab'.repeat(16) as ShardId, 0)
    expect(decided).toMatchObject((await readDatabaseHealth(broker)).origin!)
  })
})

test('a broker appends to a log by storing a statement, and may complete logs', async () => {
  const meshId = toHex(randomBytes(16)) as MeshId
  await createMesh(admin, { meshId, name: 'home' })
  const root = toHex(randomBytes(32)) as PeerKey
  await adoptRoot(broker, { meshId, root, replaces: null }, null)
  expect(await listLogEntries(broker, meshId, { from: 0, limit: 9 })).toMatchObject([{ kind: 10 }])
  expect(await backfillLogs(broker, 1)).toBe(false)
})

test('a broker publishes and claims prekeys, and the revocation by an admin deletes them', async () => {
  const meshId = toHex(randomBytes(16)) as MeshId
  const peerKey = toHex(randomBytes(32)) as PeerKey
  await createMesh(admin, { meshId, name: 'home' })
  const binding = { boxKey: randomBytes(32), boxEpoch: 1, notAfterMs: 1_900_000_000_000, signature: randomBytes(64) }
  const [peer] = await addMembers(admin, meshId, [{ peerKey, ...binding }])
  const oneTime = [{ id: 1, publicKey: randomBytes(32) }]
  const publication = { statement: randomBytes(9), issuedAtMs: 1, oneTime, replaces: true }
  const owner = { meshId, peer: peer!, peerKey }
  for (const issuedAtMs of [1, 2])
    expect((await publishPrekeys(broker, owner, { ...publication, issuedAtMs })).status).toBe('done')
  const claims = [
    await claimPrekey(broker, { meshId, user: peer! }, peerKey),
    await claimPrekey(broker, { meshId, user: peer! }, peerKey),
  ]
  expect(claims.map(({ status }) => status)).toEqual(['claimed', 'last_resort'])
  await revokePeer(admin, null, { meshId, peerKey })
  expect(
    await backup.run((sql) => sql`select from one_time_prekey union all select from prekey_statement`),
  ).toHaveLength(0)
})

test('a broker has privileges on every table', async () => {
  const missing = await broker.run(
    (sql) => sql`select relname from pg_class where relnamespace = 'public'::regnamespace
      and relkind in ('r', 'p') and not relispartition and not has_any_column_privilege(oid, 'select')`,
  )
  expect(missing).toHaveLength(0)
})

describe('an admin', () => {
  test.each([
    'drop table dead_letter',
    "update message_queue set envelope = ''",
    'delete from message_queue',
    'delete from mesh',
  ])('may not: %s', async (statement) => {
    expect(await codeOf(admin, statement)).toBe(DENIED)
  })

  test('creates meshes', async () => {
    expect(await codeOf(admin, `insert into mesh values ('${toHex(randomBytes(16))}', 'home')`)).toBe('done')
  })
})

describe('a monitor', () => {
  test.each([
    'select envelope from message_queue',
    'select terms from message_queue',
    'select envelope_id from message_queue',
    'select peer_key from member',
    'select name from member',
    'select detail from dead_letter',
    'select * from access_token',
    'select * from invite',
    'select statement from space',
    'select entry from state_entry',
    'select record from history_event',
    'delete from dead_letter',
    'update session set epoch = 1',
    'select note_origin(true)',
    "select nextval('delivery_block')",
  ])('may not: %s', async (statement) => {
    expect(await codeOf(monitor, statement)).toBe(DENIED)
  })

  test.each([
    'select recipient, count(*), min(enqueued_at), sum(body_bytes) from message_queue group by 1',
    'select count(*) from delayed_delivery where due_at < now()',
    'select reason, count(*) from dead_letter group by 1',
    'select sum(entry_bytes), sum(history_bytes) from space',
    'select query_start from pg_stat_activity',
  ])('may: %s', async (statement) => {
    expect(await codeOf(monitor, statement)).toBe('done')
  })
})

describe('a backup', () => {
  test('reads every table and sequence, and may start and stop a backup of the files', async () => {
    const [row] = await backup.run(
      (sql) => sql`
        select count(*)::int as seen, bool_and(case relkind when 'S' then has_sequence_privilege(oid, 'select')
            else has_table_privilege(oid, 'select') end) as all_read,
          has_function_privilege('pg_backup_start(text, boolean)', 'execute')
            and has_function_privilege('pg_backup_stop(boolean)', 'execute') as may_begin
        from pg_class where relnamespace::regnamespace::text in ('public', 'drizzle') and relkind in ('r', 'p', 'S')`,
    )
    expect(row).toMatchObject({ all_read: true, may_begin: true })
    expect(row!.seen).toBeGreaterThan(15)
  })

  test.each(['delete from dead_letter', "update mesh set name = ''", 'truncate member', 'select note_origin(true)'])(
    'may not: %s',
    async (statement) => {
      expect(await codeOf(backup, statement)).toBe(DENIED)
    },
  )
})

test('the statements can run twice, and the owner migrates', async () => {
  const db = await openDatabase(scratch.url, { ...unhurried, connections: 1 })
  for (const statement of roleStatements(logins.prefix)) await db.run((sql) => sql.unsafe(statement))
  const owner = await openDatabase(logins.owner, { ...unhurried, connections: 1 })
  await owner.run((sql) =>
    sql.unsafe('drop schema public cascade; create schema public; delete from drizzle.__drizzle_migrations').simple(),
  )
  await owner.close()
  await expect(migrate(logins.broker)).rejects.toMatchObject({ code: 'db_outdated' })
  await migrate(logins.owner)
  expect(await codeOf(db, 'select note_origin(false)')).toBe('done')
  await db.close()
})
