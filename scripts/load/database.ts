/** What a load test asks of the database itself: facts for the report, counters, and what is left in the queue. */
import { addMembers, createMesh, type Database, openDatabase } from '@sealpost/db'
import type { MeshId } from '@sealpost/std'
import type { Mesh } from './seed.ts'

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

const PATIENCE = { connections: 1, statementTimeoutMs: 120_000, queryTimeoutMs: 125_000 }
const CHUNK = 1000

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

  async seed({ meshId, bindings }: Mesh): Promise<void> {
    await createMesh(this.#db, { meshId, name: 'load test' })
    for (let at = 0; at < bindings.length; at += CHUNK) {
      await addMembers(this.#db, meshId, bindings.slice(at, at + CHUNK))
    }
  }

  async isQueueEmpty(meshId: MeshId): Promise<boolean> {
    const [row] = await this.#db.run(
      (sql) => sql<{ isEmpty: boolean }[]>`
        select not exists (select from message_queue where mesh_id = ${meshId}) as "isEmpty"`,
    )
    return row!.isEmpty
  }

  /** Which of these envelopes are still there, be it as dead letters. */
  async waiting(meshId: MeshId, ids: readonly string[]): Promise<Set<string>> {
    const found = new Set<string>()
    for (let at = 0; at < ids.length; at += CHUNK) {
      const chunk = `{${ids.slice(at, at + CHUNK).join(',')}}`
      const rows = await this.#db.run(
        (sql) => sql<{ id: string }[]>`
          select replace(envelope_id::text, '-', '') as id from message_queue
          where mesh_id = ${meshId} and envelope_id = any (${chunk}::uuid[])
          union all
          select replace(envelope_id::text, '-', '') from dead_letter
          where mesh_id = ${meshId} and envelope_id = any (${chunk}::uuid[])`,
      )
      for (const { id } of rows) found.add(id)
    }
    return found
  }

  async countQueued(meshId: MeshId): Promise<number> {
    const [row] = await this.#db.run(
      (sql) => sql<{ count: number }[]>`select count(*)::int as count from message_queue where mesh_id = ${meshId}`,
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
