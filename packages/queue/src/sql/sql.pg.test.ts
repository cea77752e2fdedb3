/** Tests the plans of the hot statements on the broker's connections, on empty and on grown tables. */
import { type Database, openDatabase } from '@sealpost/pg'
import type { ScratchDatabase } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  ADMIT,
  CHECK_SESSIONS,
  CLAIM,
  CLAIM_POOLS,
  COLLECT,
  COMMIT_CHECKED,
  COUNT_FAILED_ATTEMPT,
  EXTEND,
  FENCE,
  FIND_LOST,
  FIND_MEMBERS,
  FIND_POOLS,
  LOST_REPORTED,
  NOTIFY_PUSHED,
  OPEN,
  OPEN_MANY,
  REJECT,
  RELEASE,
  RELEASE_DUE,
  RETRY,
  SESSION,
  SETTLE,
  SETTLE_IN_POOL,
  SETTLE_WITH_RECEIPT,
  STORE_ONE,
  SWEEP_BODIES,
  SWEEP_LEDGER,
  SWEEP_QUEUE,
} from './sql.ts'

const ROWS = 200_000

const statements = {
  SETTLE,
  ADMIT,
  STORE_ONE,
  COMMIT_CHECKED,
  CLAIM,
  COLLECT,
  OPEN,
  OPEN_MANY,
  FENCE,
  RETRY,
  COUNT_FAILED_ATTEMPT,
  SWEEP_QUEUE,
  SWEEP_LEDGER,
  FIND_MEMBERS,
  SETTLE_WITH_RECEIPT,
  REJECT,
  EXTEND,
  NOTIFY_PUSHED,
  RELEASE_DUE,
  FIND_LOST,
  LOST_REPORTED,
  SWEEP_BODIES,
  CLAIM_POOLS,
  RELEASE,
  SETTLE_IN_POOL,
  FIND_POOLS,
  CHECK_SESSIONS,
}

const QUEUE = 'message_queue_mesh_id_recipient_priority_id_pk'
const LEDGER = 'dedupe_ledger_mesh_id_sender_second_first_id_pk'
const MARK = 'sender_mark_sender'
const PEER = 'session_mesh_id_peer_no_pk'
const MEMBER = 'member_mesh_id_peer_no_pk'
const POOL = 'pool_mesh_id_peer_no_pk'
const BODY = 'shared_body_mesh_id_sender_body_id_pk'
const WALKS = {
  SETTLE: [QUEUE],
  ADMIT: [MEMBER, PEER, QUEUE],
  STORE_ONE: [MEMBER, PEER, QUEUE],
  COMMIT_CHECKED: [LEDGER, MARK, MEMBER],
  CLAIM: [QUEUE, PEER, MEMBER],
  OPEN: [PEER, MEMBER, MARK],
  OPEN_MANY: [PEER, MEMBER, MARK],
  FENCE: [PEER],
  RETRY: [QUEUE],
  COUNT_FAILED_ATTEMPT: [QUEUE],
  SWEEP_QUEUE: [QUEUE],
  SWEEP_LEDGER: ['dedupe_ledger_due', QUEUE],
  FIND_MEMBERS: ['member_peer_key', MEMBER, PEER, 'consent_mesh_id_owner_peer_no_pk'],
  SETTLE_WITH_RECEIPT: [QUEUE],
  REJECT: [QUEUE],
  EXTEND: [QUEUE],
  NOTIFY_PUSHED: [QUEUE],
  RELEASE_DUE: ['delayed_delivery_mesh_id_due_at_id_pk'],
  FIND_LOST: ['dead_letter_untold', MEMBER],
  LOST_REPORTED: ['dead_letter_mesh_id_recipient_id_pk'],
  SWEEP_BODIES: [BODY, 'message_queue_body', 'dead_letter_body', 'delayed_delivery_body'],
  CLAIM_POOLS: [PEER, POOL, QUEUE, BODY, MEMBER],
  RELEASE: [QUEUE],
  SETTLE_IN_POOL: [QUEUE],
  FIND_POOLS: ['member_peer_key', 'former_identity_peer', POOL, MEMBER],
  CHECK_SESSIONS: [MEMBER, PEER],
} as const

type Name = keyof typeof WALKS
const names = Object.keys(WALKS) as Name[]

let scratch: ScratchDatabase
let db: Database
const empty = new Map<Name, string>()
const grown = new Map<Name, string>()

beforeAll(async () => {
  scratch = await scratchDatabase()
  db = await openDatabase(scratch.url, {
    connections: 1,
    settings: SESSION,
    statementTimeoutMs: 60_000,
    queryTimeoutMs: 60_000,
  })
  for (const name of names) empty.set(name, await planOf(name))
  await grow()
  for (const name of names) grown.set(name, await planOf(name))
})
afterAll(async () => {
  await db.close()
  await scratch.drop()
})

test('a statement without its plan settings fails these checks', async () => {
  await execute(`set enable_seqscan = on; set enable_hashjoin = on; set enable_mergejoin = on`)
  const plan = await planOf('SWEEP_LEDGER')
  await execute(`set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off`)
  expect(plan).not.toBe(grown.get('SWEEP_LEDGER'))
})

describe.each([
  ['empty', empty],
  ['grown', grown],
])('on %s tables', (_, plans) => {
  test.each(names)('%s walks its indexes and scans or hashes nothing', (name) => {
    const plan = plans.get(name)!
    expect(plan).not.toMatch(/Hash Join|Merge Join|Bitmap/)
    expect(scannedTables(plan)).toEqual([])
    for (const index of WALKS[name]) expect(plan).toContain(`using ${index}`)
  })
})

test.each(['ADMIT', 'STORE_ONE'] as const)('%s finds a mark by its `ctid`, without reading former versions', (name) => {
  for (const plan of [empty.get(name)!, grown.get(name)!]) expect(plan).toContain('Tid Scan on sender_mark m')
})

test.each(names)('the plan of %s is the same on grown tables', (name) => {
  expect(grown.get(name)).toBe(empty.get(name))
})

/** Returns the tables with sequential scans, except `mesh`, which has one row per mesh. */
function scannedTables(plan: string): string[] {
  return [...plan.matchAll(/Seq Scan on (\w+)/g)].map((match) => match[1]!).filter((table) => table !== 'mesh')
}

async function planOf(name: Name): Promise<string> {
  const { text } = statements[name]
  const count = Math.max(...[...text.matchAll(/\$(\d+)/g)].map((match) => Number(match[1])))
  await execute(`deallocate all; prepare hot as ${text}`)
  const nothing = Array.from({ length: count }, () => 'null').join()
  const rows = await db.run((sql) =>
    sql.unsafe<{ 'QUERY PLAN': string }[]>(`explain (costs off) execute hot(${nothing})`).simple(),
  )
  return rows.map((row) => row['QUERY PLAN']).join('\n')
}

/**
 * Fills the tables with recipients that have few or very many deliveries, and members that make other plans look
 * cheaper.
 */
async function grow(): Promise<void> {
  const meshId = `'${'1a'.repeat(16)}'::uuid`
  await execute(`
    insert into mesh (mesh_id, name) values (${meshId}, 'a mesh');
    insert into member (mesh_id, peer_key, box_key, box_epoch, binding_not_after_ms, binding_signature)
      select ${meshId}, sha256(n::text::bytea), sha256(''), 1, 1, sha512('') from generate_series(1, 10000) n;
    insert into session (mesh_id, peer_no) select mesh_id, peer_no from member;
    insert into message_queue (mesh_id, recipient, priority, id, sender, envelope_id, enqueued_at, expires_at, envelope)
      select ${meshId}, case when n % 2 = 0 then 1 else n % 10000 end, n % 3, n, n % 100, gen_random_uuid(), now(),
        now() + interval '1 day', sha512('') from generate_series(1, ${ROWS}) n;
    insert into pool (mesh_id, peer_no, owner, epoch, members, statement)
      select mesh_id, peer_no, peer_no, 1, '{1,2,3}', '' from member where peer_no < 100;
    insert into shared_body (mesh_id, sender, body_id, readers, bytes)
      select ${meshId}, n, sha256(n::text::bytea), '{1,2}', sha512('') from generate_series(1, 1000) n;
    insert into sender_mark (mesh_id, sender) select mesh_id, peer_no from member on conflict do nothing;
    insert into dedupe_ledger (mesh_id, sender, second, first_id, keep_until, envelope_ids, fingerprints, ids, recipients,
      priorities)
      select mesh_id, sender, id / 100, id, now(), array[envelope_id], array[1], array[id], array[recipient],
        array[priority] from message_queue;
    analyze mesh, member, session, sender_mark, pool, shared_body, message_queue, dedupe_ledger`)
}

function execute(statement: string): Promise<unknown> {
  return db.run((sql) => sql.unsafe(statement).simple())
}
