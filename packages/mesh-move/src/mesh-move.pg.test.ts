import { type Database, openDatabase } from '@sealpost/pg'
import { type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import type { MeshId, PeerKey } from '@sealpost/std'
import {
  addMembers,
  backfillLogs,
  beginIncarnation,
  createMesh,
  currentIncarnation,
  listAudit,
  readLogHead,
} from '@sealpost/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { meshTables, STAYS } from './copy.ts'
import { moveMesh } from './mesh-move.ts'

const MESH = '1a'.repeat(16) as MeshId
const OTHER = '1b'.repeat(16) as MeshId

/** Tables that change only through the queue's statements, which a freeze stops, or whose writers need no reply. */
const BY_STATEMENT = [
  'dead_letter',
  'dedupe_ledger',
  'delayed_delivery',
  'history_event',
  'message_queue',
  'sender_mark',
  'session',
  'shared_body',
  'snapshot',
  'snapshot_entry',
  'space_grant',
  'state_entry',
]

let cells: { scratch: ScratchDatabase; db: Database }[]
beforeAll(async () => {
  cells = await Promise.all(
    [1, 2].map(async () => {
      const scratch = await scratchDatabase()
      return { scratch, db: await openDatabase(scratch.url, { ...unhurried, connections: 1 }) }
    }),
  )
})
afterAll(async () => {
  for (const { scratch, db } of cells) {
    await db.close()
    await scratch.drop()
  }
})

const rowsOf = async (db: Database, statement: string): Promise<string[]> =>
  (await db.run((sql) => sql.unsafe<{ one: string }[]>(statement))).map(({ one }) => one)

test('each table with a mesh_id is copied or stays, and is frozen by its statements or by a trigger', async () => {
  const { db } = cells[0]!
  const tables = await rowsOf(
    db,
    `select table_name as one from information_schema.columns where table_schema = 'public' and column_name = 'mesh_id'
       and table_name not in (select inhrelid::regclass::text from pg_inherits)`,
  )
  const guarded = await rowsOf(
    db,
    `select tgrelid::regclass::text as one from pg_trigger where tgname = 'refuse_while_moving' and tgenabled = 'O'`,
  )
  expect([...meshTables.map(({ name }) => name), ...STAYS].sort()).toEqual([...tables].sort())
  expect([...guarded, ...BY_STATEMENT, ...STAYS].sort()).toEqual([...tables].sort())
})

test('every row of every table arrives unchanged, and other meshes are untouched', async () => {
  const [{ db: from }, { db: to }] = cells as [(typeof cells)[number], (typeof cells)[number]]
  for (const meshId of [MESH, OTHER]) await fill(from, meshId)
  const before = await everythingOf(from, MESH)
  const other = await everythingOf(from, OTHER)
  for (const [table, rows] of Object.entries(before)) expect(rows, table).not.toEqual([])
  const report = await move(MESH, 0, 1)
  expect(report.rows).toBe(Object.values(before).flat().length)
  expect(await everythingOf(to, MESH)).toEqual(before)
  expect(Object.values(await everythingOf(from, MESH)).flat()).toEqual([])
  expect(await everythingOf(from, OTHER)).toEqual(other)
  expect(await rowsOf(from, `select name || ' ' || moved_to as one from mesh where mesh_id = '${MESH}'`)).toEqual([
    'home b',
  ])
  expect(await auditOf(from)).toEqual(['mesh.leave b', 'mesh.freeze b', 'mesh.enrol null', 'mesh.create home'])
  expect(await auditOf(to)).toEqual(['mesh.arrive a'])
})

const auditOf = async (db: Database) =>
  (await listAudit(db, { meshId: MESH, limit: 10 })).map(({ action, subject }) => `${action} ${subject}`)

test('the destination reuses no number that the source has given', async () => {
  const [{ db: from }, { db: to }] = cells as [(typeof cells)[number], (typeof cells)[number]]
  for (const sequence of ['delivery_block', 'receipt_id', 'member_peer_no_seq']) {
    const [last] = await rowsOf(from, `select last_value as one from ${sequence}`)
    const [next] = await rowsOf(to, `select nextval('${sequence}') as one`)
    expect(Number(next), sequence).toBeGreaterThan(Number(last))
  }
})

test('peers see the same incarnation after moves, until the incarnation of its cell changes', async () => {
  const [{ db: a }, { db: b }] = cells as [(typeof cells)[number], (typeof cells)[number]]
  const ofA = await currentIncarnation(a)
  expect(await lineagesOf(b)).toEqual([`${ofA} ${await currentIncarnation(b)}`])
  await move(MESH, 1, 0)
  expect(await lineagesOf(a)).toEqual([`${ofA} ${ofA}`])
  await move(MESH, 0, 1)
  const restored = await beginIncarnation(b)
  await move(MESH, 1, 0)
  expect(await lineagesOf(a)).toEqual([`${restored} ${ofA}`])
})

test('a mesh that arrives without a log, from the mover of the previous version, gets one', async () => {
  const [{ db: from }, { db: to }] = cells as [(typeof cells)[number], (typeof cells)[number]]
  const { size } = await readLogHead(from, OTHER)
  for (const table of ['log_entry', 'log_node', 'mesh_log'])
    await from.run((sql) => sql.unsafe(`delete from ${table} where mesh_id = '${OTHER}'`))
  await move(OTHER, 0, 1)
  expect(await readLogHead(to, OTHER)).toEqual({ size: 0, isComplete: false })
  while (await backfillLogs(to, 100));
  // `fill` inserts a former binding without its entry.
  expect(await readLogHead(to, OTHER)).toEqual({ size: size + 1, isComplete: true })
})

const move = (meshId: MeshId, from: number, to: number) => {
  const end = (n: number) => ({ cell: 'ab'[n]!, databaseUrl: cells[n]!.scratch.url })
  return moveMesh({ meshId, from: end(from), to: end(to) })
}

const lineagesOf = (db: Database) =>
  rowsOf(db, `select replace(lineage || ' ' || lineage_in, '-', '') as one from mesh where mesh_id = '${MESH}'`)

async function everythingOf(db: Database, meshId: MeshId): Promise<Record<string, string[]>> {
  const all: Record<string, string[]> = {}
  for (const { name } of meshTables)
    all[name] = await rowsOf(
      db,
      `select row_to_json(t)::text as one from ${name} t where mesh_id = '${meshId}' order by 1`,
    )
  return all
}

/** Inserts at least one row into each table. */
async function fill(db: Database, meshId: MeshId): Promise<void> {
  await createMesh(db, { meshId, name: 'home' })
  const [ann, ben] = await addMembers(
    db,
    meshId,
    [1, 2].map((n) => ({
      peerKey: n.toString(16).padStart(64, '0') as PeerKey,
      boxKey: new Uint8Array(32).fill(n),
      boxEpoch: n,
      notAfterMs: 1_900_000_000_000,
      signature: new Uint8Array(64).fill(n),
      name: `peer ${n}`,
    })),
  )
  const ids = `('${meshId}', ${ann}, gen_random_uuid()`
  await db.run((sql) =>
    sql
      .unsafe(
        `insert into device (mesh_id, peer_no, person, invite_key, statement) values ('${meshId}', ${ann}, ${ben}, '\\x01', '\\x02');
         insert into former_identity (mesh_id, peer_key, peer_no, statement) values ('${meshId}', '\\x03', ${ann}, '\\x04');
         insert into heir_statement values ('${meshId}', ${ann}, '\\x1d', 1, '\\x1e');
         insert into key_recovery values ('${meshId}', '\\x1f', ${ann}, 1, '\\x20', '\\x21', '\\x22');
         insert into mesh_root (mesh_id, root_key) values ('${meshId}', '\\x18');
         insert into member_proof values ('${meshId}', '\\x19', 'certificate', '\\x1a', 5, '\\x1b');
         insert into member_revocation values ('${meshId}', 1, '\\x1c');
         insert into log_signer values ('${meshId}', '\\x1d', '\\x1e');
         insert into consent values ('${meshId}', ${ann}, ${ben}, true);
         insert into former_binding (mesh_id, peer_no, box_epoch, box_key, binding_not_after_ms, binding_signature)
           values ('${meshId}', ${ann}, 1, '\\x05', 6, '\\x07');
         insert into peer_group (mesh_id, owner, group_id, epoch, statement) values ${ids}, 3, '\\x08');
         insert into pool (mesh_id, peer_no, owner, epoch, members, statement) values ('${meshId}', ${ben}, ${ann}, 1, '{${ann},${ben}}', '\\x09');
         insert into invite (mesh_id, issuer, invite_id, hash, uses_max) values ${ids}, '\\x0a', 4);
         insert into prekey_statement values ('${meshId}', ${ben}, '\\x18', 5, 6);
         insert into one_time_prekey values ('${meshId}', ${ben}, 7, '\\x19', ${ann}, now()), ('${meshId}', ${ben}, 8, '\\x1a', null, null);
         update session set epoch = 7, opened_epoch = 6 where mesh_id = '${meshId}';
         update sender_mark set version = 12, last_envelope_id = gen_random_uuid() where mesh_id = '${meshId}';
         insert into message_queue (mesh_id, recipient, envelope_id, priority, id, sender, expires_at, lease_epoch, lease_until, strikes,
             body_id, body_bytes, envelope)
           select '${meshId}', ${ben}, gen_random_uuid(), 1, 65536 + n, ${ann}, now() + interval '1 hour', 7, now(), 2, '\\x0b', 1, '\\x00ff'
           from generate_series(1, 100) n;
         insert into shared_body (mesh_id, sender, body_id, readers, bytes) values ('${meshId}', ${ann}, '\\x0b', '{1,2}', '\\x0c');
         insert into delayed_delivery (mesh_id, due_at, id, recipient, priority, sender, envelope_id, enqueued_at, expires_at, terms,
             envelope)
           values ('${meshId}', now() + interval '1 day', 65537, ${ben}, 1, ${ann}, gen_random_uuid(), now(),
           now() + interval '2 days', '\\x0d', '\\x0e');
         insert into dedupe_ledger (mesh_id, sender, second, first_id, keep_until, envelope_ids, fingerprints, ids, recipients,
             priorities)
           values ('${meshId}', ${ann}, 5, 65537, now() + interval '1 day', array[gen_random_uuid()],
           '{-3}', '{65537}', '{${ben}}', '{1}');
         insert into dead_letter (mesh_id, recipient, envelope_id, id, priority, sender, attempts, strikes, enqueued_at, reason)
           values ${ids}, 1, 1, ${ben}, 3, 3, now(), 'strikes');
         insert into access_token (mesh_id, peer_no, hash, expires_at) values ('${meshId}', ${ann}, '\\x0f', now());
         insert into space (mesh_id, space_id, owner, epoch, statement, history_for, keeps_messages, keep_seconds, keep_bytes, last_seq)
           values ('${meshId}', '${meshId}', ${ann}, 1, '\\x10', 'all', true, 60, 1000, 42);
         insert into space_grant values ('${meshId}', '${meshId}', ${ben}, 1, ${ann}, '\\x11');
         insert into state_entry values ('${meshId}', '${meshId}', '\\x12', 2, 42, now(), ${ann}, true, '\\x13', '\\x14');
         create table if not exists history_event_old partition of history_event for values from ('2020-01-01') to ('2020-01-02');
         insert into history_event (mesh_id, space_id, seq, at, kind, author, record)
           select '${meshId}', '${meshId}', n, case when n < 20 then '2020-01-01'::timestamptz else now() end, 1, ${ann}, '\\x14'
           from generate_series(1, 42) n;
         insert into attachment (mesh_id, attachment_id, owner, recipients, bytes, chunk_bytes, store, keep_seconds, expires_at)
           values ('${meshId}', '${meshId}', ${ann}, '{${ben}}', 5000, 4096, 'postgres', 60, now());
         insert into attachment_chunk select '${meshId}', '${meshId}', n, '\\x16', '\\x17' from generate_series(0, 204) n;
         insert into snapshot values ('${meshId}', '${meshId}', 41, now(), 1, 1, now());
         insert into snapshot_entry values ('${meshId}', '${meshId}', 41, now(), '\\x12', 40, now(), ${ann}, '\\x15');`,
      )
      .simple(),
  )
}
