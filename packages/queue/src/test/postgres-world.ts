/** Provides the Postgres queue as conformance worlds in one scratch database, which is emptied for each. */
import { byteaText, type Database, openDatabase, openPipeline, type Pipeline } from '@sealpost/pg'
import { unhurried } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import { loginsOf } from '@sealpost/schema/testing-roles'
import { assert, type GroupId, type MeshId, type PeerKey, type PeerNo } from '@sealpost/std'
import { addMembers, createMesh, putGroup, putPool } from '@sealpost/store'
import { revokeMember } from '@sealpost/store/testing'
import { PostgresQueue, type QueueDatabases } from '../postgres/postgres-queue.ts'
import { SESSION } from '../sql/sql.ts'
import { type DeadLetterFacts, type QueueWorld, textOf } from './conformance-world.ts'

export interface PostgresWorlds {
  /** A connection with all privileges. */
  readonly url: string
  readonly admin: Database
  readonly databases: QueueDatabases
  /** The second shard's connection for writing; on a single one, the shards would alternate. */
  readonly rivalWriting: Pipeline
  next(): Promise<QueueWorld>
  close(): Promise<void>
}

/** Creates the worlds, whose queues have a broker's privileges. */
export async function postgresWorlds(): Promise<PostgresWorlds> {
  const scratch = await scratchDatabase()
  const logins = await loginsOf(scratch.url)
  const options = { ...unhurried, connections: 1 }
  const asBroker = { ...options, settings: { ...unhurried.settings, ...SESSION } }
  const open = () => openDatabase(scratch.url, options)
  const openAsBroker = () => openDatabase(logins.broker, asBroker)
  const pipeline = () => openPipeline(logins.broker, asBroker)
  const databases = {
    writing: await pipeline(),
    claiming: await pipeline(),
    collecting: await pipeline(),
    asking: await openAsBroker(),
  }
  const rivalWriting = await pipeline()
  const admin = await open()
  const rival = await open()
  const all = [...Object.values(databases), rivalWriting, admin, rival]
  return {
    url: scratch.url,
    admin,
    databases,
    rivalWriting,
    next: async () => {
      await execute(
        admin,
        'truncate mesh, member, session, message_queue, delayed_delivery, shared_body, dedupe_ledger, dead_letter, history_event cascade',
      )
      await execute(admin, 'alter sequence delivery_block restart')
      await execute(admin, 'alter sequence receipt_id restart')
      return new PostgresWorld(databases, admin, rival)
    },
    close: async () => {
      await Promise.all(all.map((db) => db.close()))
      await logins.drop()
      await scratch.drop()
    },
  }
}

class PostgresWorld implements QueueWorld {
  private readonly databases: QueueDatabases
  private readonly admin: Database
  private readonly rival: Database
  private groupEpoch = 0

  constructor(databases: QueueDatabases, admin: Database, rival: Database) {
    this.databases = databases
    this.admin = admin
    this.rival = rival
  }

  queueFor: QueueWorld['queueFor'] = (shard, options) => new PostgresQueue(this.databases, shard, options)

  addMesh: QueueWorld['addMesh'] = (meshId) => createMesh(this.admin, { meshId, name: 'a mesh' })

  addMember: QueueWorld['addMember'] = async (meshId, peerKey) => {
    const binding = {
      peerKey,
      boxKey: new Uint8Array(32),
      boxEpoch: 1,
      notAfterMs: 1_900_000_000_000,
      signature: new Uint8Array(64),
    }
    const [peer] = await addMembers(this.admin, meshId, [binding])
    return peer!
  }

  setPool: QueueWorld['setPool'] = async (meshId, poolId, { owner: peer, epoch, members }) => {
    const outcome = await putPool(
      this.admin,
      { meshId, peer },
      { poolId, epoch, members, statement: Uint8Array.of(epoch) },
    )
    assert(outcome === 'done', `the pool has the outcome ${outcome}`)
  }

  setSpace: QueueWorld['setSpace'] = async (meshId, spaceId, { owner, keepsMessages, members }) => {
    if (members) await this.setGroup(meshId, spaceId as GroupId, owner, members)
    await this.admin.run(
      (sql) => sql`
        insert into space (mesh_id, space_id, owner, epoch, statement, history_for, keeps_messages, keep_seconds, keep_bytes, kept_since)
        values (${meshId}::uuid, ${spaceId}::uuid, ${owner}, 1, '', 'all', ${keepsMessages}, 60, 1000, now())
        on conflict (mesh_id, space_id) do update set keeps_messages = excluded.keeps_messages`,
    )
  }

  private async setGroup(meshId: MeshId, groupId: GroupId, peer: PeerNo, members: readonly PeerKey[]): Promise<void> {
    this.groupEpoch += 1
    const statement = new Uint8Array(Buffer.from(members.join(''), 'hex'))
    const outcome = await putGroup(this.admin, { meshId, peer }, { groupId, epoch: this.groupEpoch, statement })
    assert(outcome === 'done', `the group has the outcome ${outcome}`)
  }

  keptMessages: QueueWorld['keptMessages'] = async (meshId, spaceId) => {
    const rows = await this.admin.run(
      (sql) => sql<{ seq: number; record: Uint8Array; body: Uint8Array }[]>`
        select seq, record, body from history_event
        where mesh_id = ${meshId}::uuid and space_id = ${spaceId}::uuid and kind = 3 order by seq`,
    )
    return rows.map(({ seq, record, body }) => ({ seq, record: textOf(record), body: textOf(body) }))
  }

  revoke: QueueWorld['revoke'] = async (meshId, peerKey) => {
    const peer = await revokeMember(this.admin, meshId, peerKey)
    assert(peer !== undefined, `${byteaText(peerKey)} is a member`)
  }

  /** Moves all stored times into the past. */
  advance: QueueWorld['advance'] = async (byMs) => {
    const back = (column: string) => `${column} = ${column} - make_interval(secs => ${byMs / 1000})`
    const columns = ['enqueued_at', 'expires_at', 'lease_until', 'first_strike_at']
    await execute(this.admin, `update message_queue set ${columns.map(back).join(', ')}`)
    await execute(this.admin, `update shared_body set ${back('stored_at')}`)
    await execute(this.admin, `update dedupe_ledger set ${back('keep_until')}`)
    await execute(
      this.admin,
      `update delayed_delivery set ${['enqueued_at', 'expires_at', 'due_at'].map(back).join(', ')}`,
    )
  }

  whileLocked: QueueWorld['whileLocked'] = async (meshId, peer, body) => {
    await execute(this.rival, 'begin')
    await execute(this.rival, `select from session where mesh_id = '${meshId}' and peer_no = ${peer} for update`)
    try {
      await body()
    } finally {
      await execute(this.rival, 'rollback')
    }
  }

  deadLetters: QueueWorld['deadLetters'] = () =>
    this.admin.run((sql) =>
      sql.unsafe<DeadLetterFacts[]>(
        `select id, recipient, replace(envelope_id::text, '-', '') as "envelopeId", reason, detail, attempts,
           strikes as "failedAttempts",
           told_at is not null as "isReported", envelope is not null as "hasEnvelope"
         from dead_letter order by id`,
      ),
    )

  bodyCount: QueueWorld['bodyCount'] = async () => {
    const [row] = await this.admin.run((sql) =>
      sql.unsafe<{ count: number }[]>('select count(*)::int as count from shared_body'),
    )
    return row!.count
  }

  end: QueueWorld['end'] = async () => undefined
}

/** Resolves when a statement of this database waits for a lock. */
export async function untilBlocked(worlds: PostgresWorlds): Promise<void> {
  const [row] = await worlds.databases.asking.run(
    (sql) => sql<{ count: number }[]>`
      select count(*)::int as count from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`,
  )
  if (row!.count === 0) return untilBlocked(worlds)
}

function execute(db: Database, statement: string): Promise<unknown> {
  return db.run((sql) => sql.unsafe(statement).simple())
}
