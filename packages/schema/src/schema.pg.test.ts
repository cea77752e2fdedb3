import { expect, test } from 'vitest'
import { databaseOfFile } from './test/database.ts'

const db = await databaseOfFile({ connections: 1 })

interface IndexFacts {
  table: string
  index: string
  columns: string[]
  definition: string
}

function indexes(): Promise<IndexFacts[]> {
  return db.run(
    (sql) => sql<IndexFacts[]>`
      select c.relname as "table", i.indexrelid::regclass::text as "index", pg_get_indexdef(i.indexrelid) as definition,
             (select json_agg(a.attname order by k.place)
              from unnest(i.indkey::int2[]) with ordinality as k (attnum, place)
              left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum) as "columns"
      from pg_index i join pg_class c on c.oid = i.indrelid
      where c.relnamespace = 'public'::regnamespace and not c.relispartition`,
  )
}

test('every primary key and index begins with mesh_id, except in tables outside of meshes', async () => {
  const all = await indexes()
  const tables = [...new Set(all.map((entry) => entry.table))].sort()
  expect(tables).toEqual([
    'access_token',
    'admin_audit',
    'admin_token',
    'attachment',
    'attachment_chunk',
    'cluster',
    'consent',
    'dead_letter',
    'dedupe_ledger',
    'delayed_delivery',
    'device',
    'former_binding',
    'former_identity',
    'heir_statement',
    'history_event',
    'invite',
    'key_recovery',
    'log_entry',
    'log_node',
    'log_signer',
    'member',
    'member_proof',
    'member_revocation',
    'mesh',
    'mesh_log',
    'mesh_move',
    'mesh_pin',
    'mesh_root',
    'message_queue',
    'one_time_prekey',
    'peer_group',
    'pool',
    'prekey_statement',
    'prepared_send',
    'sender_mark',
    'session',
    'shard',
    'shared_body',
    'snapshot',
    'snapshot_entry',
    'space',
    'space_grant',
    'state_entry',
  ])
  const ofNoMesh = ['cluster', 'shard', 'admin_audit', 'admin_token', 'prepared_send']
  const strays = all.filter((entry) => !ofNoMesh.includes(entry.table) && entry.columns[0] !== 'mesh_id')
  expect(strays).toEqual([])
})

test('no index or predicate of the queue contains a lease column, so that a claim is a heap-only update', async () => {
  const definitions = (await indexes())
    .filter((entry) => entry.table === 'message_queue')
    .map((entry) => entry.definition)
  expect(definitions.length).toBeGreaterThan(0)
  for (const definition of definitions) expect(definition).not.toMatch(/lease_|attempts|strike/)
})

test('the queue leaves room on its pages for leases', async () => {
  const [row] = await db.run(
    (sql) => sql`select reloptions::text as options from pg_class where relname = 'message_queue'`,
  )
  expect(row?.options).toContain('fillfactor=70')
})
