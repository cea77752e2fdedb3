/** Reads facts, counters and the remaining queue from the databases of a test. */

import { enrolMembers, enrolMesh, type MeshMembers } from '@sealpost/harness/members/mesh'
import { sum } from '@sealpost/harness/report/text'
import { type Database, openDatabase } from '@sealpost/pg'
import type { MeshId } from '@sealpost/std'
import { readStatementStats, type StatementStats } from '@sealpost/store'

export interface PostgresFacts {
  readonly postgresVersion: string
  readonly durability: { readonly fsync: string; readonly synchronousCommit: string }
  /** The process id of this connection's backend. */
  readonly backendPid: number
}

export interface DatabaseCounters {
  readonly transactions: number
  readonly walBytes: number
}

export interface RelationFacts {
  readonly name: string
  readonly table: string
  /** The size without indexes and TOAST. */
  readonly bytes: number
  /** A table's size with indexes and TOAST; null for an index. */
  readonly bytesInAll: number | null
  /** The number of dead rows, from statistics up to a second old; 0 for an index. */
  readonly dead: number
  /** Inserted minus deleted rows since the statistics began, because counting would scan the table. */
  readonly rows: number
}

/** Tables that change with every message. */
const HOT_TABLES = ['message_queue', 'dedupe_ledger', 'session', 'sender_mark']
const OPTIONS = { connections: 1, statementTimeoutMs: 120_000, queryTimeoutMs: 125_000 }
const CHUNK = 1000
/** The maximum number of reported statements, by total time. */
const STATEMENTS_MAX = 200

export class LoadDatabase {
  readonly #db: Database

  private constructor(db: Database) {
    this.#db = db
  }

  static async open(url: string): Promise<LoadDatabase> {
    return new LoadDatabase(await openDatabase(url, { ...OPTIONS, applicationName: 'sealpost load test' }))
  }

  /** Reads facts about the server, with the broker's settings. */
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
   * Reads the server's counters. Connections report theirs after a transaction, once a second, so wait and let the
   * broker commit something (`tap`) first.
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
          where schemaname = 'public' and relname = any (${arrayOf(HOT_TABLES)}::text[])
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

  /** Starts counting statements on a server that loads `pg_stat_statements`. */
  async countStatements(): Promise<void> {
    await this.#db.run((sql) => sql`create extension if not exists pg_stat_statements`)
  }

  /** Returns null if the server does not count statements, or hides them. */
  statements(): Promise<StatementStats[] | null> {
    return readStatementStats(this.#db, STATEMENTS_MAX)
  }

  seed(mesh: MeshMembers): Promise<void> {
    return enrolMesh(this.#db, mesh, 'load test')
  }

  enrol(members: MeshMembers): Promise<void> {
    return enrolMembers(this.#db, members)
  }

  /** Returns whether at most this many deliveries are queued, without counting more. */
  async holdsAtMost(meshIds: readonly MeshId[], most: number): Promise<boolean> {
    const [row] = await this.#db.run(
      (sql) => sql<{ holds: boolean }[]>`
        select count(*) <= ${most} as holds from (
          select from message_queue where mesh_id = any (${arrayOf(meshIds)}::uuid[]) limit ${most + 1}) as q`,
    )
    return row!.holds
  }

  /** Returns which envelopes are queued or dead letters. */
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

  /** Counts the queued deliveries. @param meshIds - null for all meshes */
  async countQueued(meshIds: readonly MeshId[] | null): Promise<number> {
    const meshes = meshIds && arrayOf(meshIds)
    const [row] = await this.#db.run(
      (sql) => sql<{ count: number }[]>`
        select count(*)::int as count from message_queue
        where ${meshes}::uuid[] is null or mesh_id = any (${meshes}::uuid[])`,
    )
    return row!.count
  }

  /** Deletes the mesh from every table with a `mesh_id`, if the database outlives the test. */
  async forget(meshId: MeshId): Promise<void> {
    const rows = await this.#db.run(
      (sql) => sql<{ name: string }[]>`
        select table_name as name from information_schema.columns
        where table_schema = 'public' and column_name = 'mesh_id'`,
    )
    const referenced = ['session', 'member', 'mesh']
    const tables = rows.map(({ name }) => name).filter((name) => !referenced.includes(name))
    for (const table of [...tables, ...referenced])
      await this.#db.run((sql) => sql`delete from ${sql(table)} where mesh_id = ${meshId}`)
  }

  close(): Promise<void> {
    return this.#db.close()
  }
}

/** The databases of all cells. */
export class Databases {
  readonly cells: readonly LoadDatabase[]

  private constructor(cells: readonly LoadDatabase[]) {
    this.cells = cells
  }

  static async open(urls: readonly string[]): Promise<Databases> {
    return new Databases(await Promise.all(urls.map((url) => LoadDatabase.open(url))))
  }

  get first(): LoadDatabase {
    return this.cells[0]!
  }

  /** Returns one entry for each cell. */
  facts(): Promise<PostgresFacts[]> {
    return this.#each((cell) => cell.facts())
  }

  async counters(): Promise<DatabaseCounters> {
    const all = await this.#each((cell) => cell.counters())
    return {
      transactions: sum(all.map(({ transactions }) => transactions)),
      walBytes: sum(all.map(({ walBytes }) => walBytes)),
    }
  }

  /** Returns whether at most this many deliveries are queued. */
  async holdAtMost(meshIds: readonly MeshId[], most: number): Promise<boolean> {
    if (this.cells.length > 1) return (await this.countQueued(meshIds)) <= most
    return this.first.holdsAtMost(meshIds, most)
  }

  async waiting(meshIds: readonly MeshId[], ids: readonly string[]): Promise<Set<string>> {
    return new Set((await this.#each((cell) => cell.waiting(meshIds, ids))).flatMap((found) => [...found]))
  }

  async countQueued(meshIds: readonly MeshId[] | null): Promise<number> {
    return sum(await this.#each((cell) => cell.countQueued(meshIds)))
  }

  async forget(meshId: MeshId): Promise<void> {
    await this.#each((cell) => cell.forget(meshId))
  }

  async close(): Promise<void> {
    await this.#each((cell) => cell.close())
  }

  #each<T>(ask: (cell: LoadDatabase) => Promise<T>): Promise<T[]> {
    return Promise.all(this.cells.map(ask))
  }
}

/** Returns an array literal for Postgres. */
const arrayOf = (values: readonly string[]): string => `{${values.join(',')}}`
