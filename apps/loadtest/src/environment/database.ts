/** What a load test asks of the database itself: facts for the report, counters, and what is left in the queue. */

import type { MeshMembers } from '@sealpost/harness/members/mesh'
import { type Database, openDatabase } from '@sealpost/pg'
import type { MeshId } from '@sealpost/std'
import { addMembers, createMesh, readStatementStats, type StatementStats } from '@sealpost/store'

export interface PostgresFacts {
  readonly postgresVersion: string
  readonly durability: { readonly fsync: string; readonly synchronousCommit: string }
  /** Of the backend that answered. */
  readonly backendPid: number
}

export interface DatabaseCounters {
  readonly transactions: number
  readonly walBytes: number
}

/** A table, or an index of one, at a moment. */
export interface RelationFacts {
  readonly name: string
  readonly table: string
  /** Without indexes and TOAST. */
  readonly bytes: number
  /** Of a table with all that belongs to it; null for an index. */
  readonly bytesInAll: number | null
  /** As the statistics have it, up to a second late; 0 for an index. */
  readonly dead: number
  /** Inserted and not deleted since the statistics began: counting costs a walk over all of them. */
  readonly rows: number
}

/** The tables that change with every message. */
const HOT_TABLES = ['message_queue', 'dedupe_ledger', 'session', 'sender_mark']
const PATIENCE = { connections: 1, statementTimeoutMs: 120_000, queryTimeoutMs: 125_000 }
const CHUNK = 1000
/** Those that took the most time. */
const STATEMENTS = 200

export class LoadDatabase {
  readonly #db: Database

  private constructor(db: Database) {
    this.#db = db
  }

  static async open(url: string): Promise<LoadDatabase> {
    return new LoadDatabase(await openDatabase(url, { ...PATIENCE, applicationName: 'sealpost load test' }))
  }

  /** The settings as they hold for connections opened the way the broker opens its own. */
  async facts(): Promise<PostgresFacts> {
    const [row] = await this.#db.run(
      (sql) => sql<{ version: string; fsync: string; commit: string; pid: number }[]>`
        select split_part(current_setting('server_version'), ' ', 1) as version, current_setting('fsync') as fsync,
          current_setting('synchronous_commit') as commit, pg_backend_pid() as pid`,
    )
    const { version, fsync, commit, pid } = row!
    return { postgresVersion: version, durability: { fsync, synchronousCommit: commit }, backendPid: pid }
  }

  /**
   * A connection reports its transactions at the end of one, at most once a second: wait that long and have the broker
   * commit something (`tap`) before reading.
   */
  async counters(): Promise<DatabaseCounters> {
    const [row] = await this.#db.run(
      (sql) => sql<{ transactions: number; walBytes: number }[]>`
        select (xact_commit + xact_rollback)::float8 as transactions,
          pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 as "walBytes"
        from pg_stat_database where datname = current_database()`,
    )
    return row!
  }

  async relations(): Promise<RelationFacts[]> {
    const rows = await this.#db.run(
      (sql) => sql<RelationFacts[]>`
        with hot as (
          select relid, relname, n_dead_tup, n_tup_ins - n_tup_del as rows from pg_stat_user_tables
          where schemaname = current_schema and relname = any (${arrayOf(HOT_TABLES)}::text[])
        )
        select relname as name, relname as table, pg_relation_size(relid)::float8 as bytes,
          pg_total_relation_size(relid)::float8 as "bytesInAll", n_dead_tup::float8 as dead, rows::float8
        from hot
        union all
        select c.relname, hot.relname, pg_relation_size(c.oid)::float8, null, 0, 0
        from hot join pg_index i on i.indrelid = hot.relid join pg_class c on c.oid = i.indexrelid
        order by 2, 4 nulls last, 1`,
    )
    return [...rows]
  }

  /** From then on the server counts, if it was started for that; for a database of our own only. */
  async countStatements(): Promise<void> {
    await this.#db.run((sql) => sql`create extension if not exists pg_stat_statements`)
  }

  /** Null where the server does not count, or not for this account. */
  statements(): Promise<StatementStats[] | null> {
    return readStatementStats(this.#db, STATEMENTS)
  }

  async seed(mesh: MeshMembers): Promise<void> {
    await createMesh(this.#db, { meshId: mesh.meshId, name: 'load test' })
    await this.enroll(mesh)
  }

  /** Into a mesh that is there already. */
  async enroll({ meshId, bindings }: MeshMembers): Promise<void> {
    for (let at = 0; at < bindings.length; at += CHUNK) {
      await addMembers(this.#db, meshId, bindings.slice(at, at + CHUNK))
    }
  }

  /** Counts no further than it must. */
  async holdsAtMost(meshIds: readonly MeshId[], most: number): Promise<boolean> {
    const [row] = await this.#db.run(
      (sql) => sql<{ holds: boolean }[]>`
        select count(*) <= ${most} as holds from (
          select from message_queue where mesh_id = any (${arrayOf(meshIds)}::uuid[]) limit ${most + 1}) as q`,
    )
    return row!.holds
  }

  /** Which of these envelopes are still there, be it as dead letters. */
  async waiting(meshIds: readonly MeshId[], ids: readonly string[]): Promise<Set<string>> {
    const found = new Set<string>()
    for (let at = 0; at < ids.length; at += CHUNK) {
      const chunk = arrayOf(ids.slice(at, at + CHUNK))
      const meshes = arrayOf(meshIds)
      const rows = await this.#db.run(
        (sql) => sql<{ id: string }[]>`
          select replace(envelope_id::text, '-', '') as id from message_queue
          where mesh_id = any (${meshes}::uuid[]) and envelope_id = any (${chunk}::uuid[])
          union all
          select replace(envelope_id::text, '-', '') from dead_letter
          where mesh_id = any (${meshes}::uuid[]) and envelope_id = any (${chunk}::uuid[])`,
      )
      for (const { id } of rows) found.add(id)
    }
    return found
  }

  async countQueued(meshIds: readonly MeshId[]): Promise<number> {
    const [row] = await this.#db.run(
      (sql) => sql<{ count: number }[]>`
        select count(*)::int as count from message_queue where mesh_id = any (${arrayOf(meshIds)}::uuid[])`,
    )
    return row!.count
  }

  /** Of all meshes. */
  async countAllQueued(): Promise<number> {
    const [row] = await this.#db.run(
      (sql) => sql<{ count: number }[]>`select count(*)::int as count from message_queue`,
    )
    return row!.count
  }

  /** Takes the mesh out of a database that outlives the test: of every table that knows meshes, the referenced ones last. */
  async forget(meshId: MeshId): Promise<void> {
    const rows = await this.#db.run(
      (sql) => sql<{ name: string }[]>`
        select table_name as name from information_schema.columns
        where table_schema = current_schema and column_name = 'mesh_id'`,
    )
    const referenced = ['session', 'member', 'mesh']
    const tables = rows.map(({ name }) => name).filter((name) => !referenced.includes(name))
    for (const table of [...tables, ...referenced]) {
      await this.#db.run((sql) => sql`delete from ${sql(table)} where mesh_id = ${meshId}`)
    }
  }

  close(): Promise<void> {
    return this.#db.close()
  }
}

/** As Postgres reads it. */
const arrayOf = (ids: readonly string[]): string => `{${ids.join(',')}}`
