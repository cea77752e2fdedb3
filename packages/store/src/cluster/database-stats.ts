/** Reads Postgres' own reports: health, sizes, settings and statement times. */
import { type Database, DatabaseError } from '@sealpost/pg'
import * as schema from '@sealpost/schema'
import type { Millis } from '@sealpost/std'
import { getTableConfig, PgTable } from 'drizzle-orm/pg-core'
import { type Origin, parseOrigin } from './origin.ts'

export interface DatabaseHealth {
  /** Null until the brokers have agreed on a server. */
  readonly origin: Origin | null
  /**
   * The age of the oldest snapshot that keeps dead rows, including those of prepared transactions; 0 if there is none.
   * Transactions of other accounts are visible only with the role `pg_read_all_stats`.
   */
  readonly snapshotSeconds: number
  /** Dead rows of the queue, the sessions and the marks, according to the server's statistics. */
  readonly deadRows: number
}

interface HealthRow {
  server: string | null
  noted: string | null
  incarnation: string
  snapshotSeconds: number
  deadRows: number
}

export async function readDatabaseHealth(db: Database): Promise<DatabaseHealth> {
  const [row] = await db.run(
    (sql) => sql<HealthRow[]>`
      select database_origin() as server, noted, incarnation,
        greatest(0, extract(epoch from clock_timestamp() - least(
          (select min(xact_start) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
            and backend_type in ('client backend', 'walsender') and coalesce(backend_xid, backend_xmin) is not null),
          (select min(prepared) from pg_prepared_xacts where database = current_database()))))::float8
          as "snapshotSeconds",
        (select coalesce(sum(n_dead_tup), 0)::float8 from pg_stat_user_tables
          where schemaname = 'public' and relname in ('message_queue', 'session', 'sender_mark')) as "deadRows"
      from (select origin as noted, replace(incarnation::text, '-', '') as incarnation from cluster) c`,
  )
  const { server, noted, incarnation, snapshotSeconds, deadRows } = row!
  return { origin: parseOrigin([server, noted, incarnation]), snapshotSeconds: snapshotSeconds ?? 0, deadRows }
}

export interface TableStats {
  /** The table, or the parent of partitions, whose sums are reported. */
  readonly name: string
  readonly partitions: number
  /** From the server's statistics, about a second old. */
  readonly rows: number
  readonly deadRows: number
  readonly bytes: number
  readonly vacuumedAtMs: Millis | null
}

export interface SnapshotHolder {
  readonly pid: number
  readonly application: string
  readonly state: string
  readonly seconds: number
}

export interface DatabaseStats {
  readonly version: string
  readonly bytes: number
  /** Bytes written since the server was initialized. */
  readonly walBytes: number
  readonly connections: number
  /** The connections of brokers and their tools. */
  readonly ownConnections: number
  readonly connectionsMax: number
  /** The three oldest transactions, oldest first. */
  readonly snapshots: readonly SnapshotHolder[]
  readonly tables: readonly TableStats[]
}

type Scalars = Omit<DatabaseStats, 'snapshots' | 'tables'>

/** Runs three queries on the server's statistics, which take a few milliseconds. */
export async function readDatabaseStats(db: Database): Promise<DatabaseStats> {
  const [[scalars], snapshots, tables] = await Promise.all([
    db.run(
      (sql) => sql<Scalars[]>`
        select split_part(current_setting('server_version'), ' ', 1) as version,
          pg_database_size(current_database())::float8 as bytes,
          pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 as "walBytes",
          count(*)::int as connections,
          (count(*) filter (where application_name like 'sealpost%'))::int as "ownConnections",
          current_setting('max_connections')::int as "connectionsMax"
        from pg_stat_activity where datname = current_database()`,
    ),
    db.run(
      (sql) => sql<SnapshotHolder[]>`
        select pid, coalesce(application_name, '') as application, coalesce(state, '') as state,
          extract(epoch from clock_timestamp() - xact_start)::float8 as seconds
        from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
          and coalesce(backend_xid, backend_xmin) is not null and clock_timestamp() - xact_start > interval '1 second'
        order by xact_start limit 3`,
    ),
    db.run(
      (sql) => sql<TableStats[]>`
        select coalesce(i.inhparent, t.relid)::regclass::text as name, count(i.inhrelid)::int as partitions,
          sum(n_live_tup)::float8 as rows, sum(n_dead_tup)::float8 as "deadRows",
          sum(pg_total_relation_size(t.relid))::float8 as bytes,
          floor(extract(epoch from max(greatest(last_vacuum, last_autovacuum))) * 1000)::float8 as "vacuumedAtMs"
        from pg_stat_user_tables t left join pg_inherits i on i.inhrelid = t.relid
        where t.schemaname = 'public' group by 1 order by bytes desc, name`,
    ),
  ])
  return { ...scalars!, snapshots, tables }
}

export interface ServerState {
  readonly autovacuum: boolean
  /** How far the server's clock is ahead of this machine's clock. */
  readonly clockAheadMs: Millis
  /** Replication slots without a consumer, which retain WAL and dead rows forever. */
  readonly abandonedSlots: readonly string[]
  readonly preparedTransactions: number
}

export async function readServerState(db: Database): Promise<ServerState> {
  const askedAtMs = Date.now()
  const [row] = await db.run(
    (sql) => sql<{ autovacuum: boolean; clockMs: number; slots: string[]; prepared: number }[]>`
      select current_setting('autovacuum') = 'on' and current_setting('track_counts') = 'on' as autovacuum,
        (extract(epoch from clock_timestamp()) * 1000)::float8 as "clockMs",
        (select coalesce(json_agg(slot_name order by slot_name), '[]') from pg_replication_slots where not active) as slots,
        (select count(*)::int from pg_prepared_xacts where database = current_database()) as prepared`,
  )
  const { autovacuum, clockMs, slots, prepared } = row!
  const hereMs = (askedAtMs + Date.now()) / 2
  return { autovacuum, clockAheadMs: clockMs - hereMs, abandonedSlots: slots, preparedTransactions: prepared }
}

/** Returns the names of indexes that are missing or invalid. */
export async function missingIndexes(db: Database): Promise<string[]> {
  const rows = await db.run(
    (sql) => sql<{ name: string; table: string; isPrimary: boolean }[]>`
      select i.relname as name, t.relname as table, x.indisprimary as "isPrimary"
      from pg_index x join pg_class i on i.oid = x.indexrelid join pg_class t on t.oid = x.indrelid
        join pg_namespace n on n.oid = t.relnamespace
      where n.nspname = 'public' and x.indisvalid and x.indisready`,
  )
  const there = new Set(rows.map(({ name }) => name))
  const withKey = new Set(rows.filter(({ isPrimary }) => isPrimary).map(({ table }) => table))
  return tables().flatMap((table) => {
    const { name, indexes, primaryKeys, columns } = getTableConfig(table)
    const absent = indexes.map(({ config }) => config.name!).filter((index) => !there.has(index))
    const hasKey = primaryKeys.length > 0 || columns.some(({ primary }) => primary)
    return hasKey && !withKey.has(name) ? [`the primary key of ${name}`, ...absent] : absent
  })
}

const tables = (): PgTable[] => (Object.values(schema) as unknown[]).filter((each) => each instanceof PgTable)

export interface StatementStats {
  /** The text of the statement, with `$1` and so on for constants. */
  readonly text: string
  readonly calls: number
  readonly meanMs: number
  readonly deviationMs: number
  readonly maxMs: number
}

/**
 * The number of standard deviations above the mean below which at least 95 % of all calls lie, for any distribution
 * (Cantelli's inequality, √(0.95 / 0.05)). `pg_stat_statements` has no percentiles.
 */
const DEVIATIONS_OF_P95 = Math.sqrt(0.95 / 0.05)

/** Returns an upper bound for the 95th percentile. */
export const p95BoundMs = ({ meanMs, deviationMs, maxMs }: StatementStats): number =>
  Math.min(maxMs, meanMs + DEVIATIONS_OF_P95 * deviationMs)

/**
 * Returns this database's statements by total time, descending; null if `pg_stat_statements` is not available to this
 * account.
 */
export async function readStatementStats(db: Database, limit: number): Promise<StatementStats[] | null> {
  const [installed] = await db.run(
    (sql) => sql<{ schema: string }[]>`
      select n.nspname as schema from pg_extension e join pg_namespace n on n.oid = e.extnamespace
      where e.extname = 'pg_stat_statements'`,
  )
  if (!installed) return null
  try {
    const rows = await db.run(
      (sql) => sql<StatementStats[]>`
        select regexp_replace(query, '\\s+', ' ', 'g') as text, sum(calls)::float8 as calls,
          (sum(total_exec_time) / sum(calls))::float8 as "meanMs", max(stddev_exec_time)::float8 as "deviationMs",
          max(max_exec_time)::float8 as "maxMs"
        from ${sql(installed.schema)}.pg_stat_statements
        where dbid = (select oid from pg_database where datname = current_database()) and calls > 0
        group by 1 order by sum(total_exec_time) desc limit ${limit}`,
    )
    return [...rows]
  } catch (error) {
    if (error instanceof DatabaseError && error.sqlstate && NOT_FOR_US.includes(error.sqlstate)) return null
    throw error
  }
}

/** SQLSTATEs for: extension not preloaded, no privilege, version too old for `total_exec_time`. */
const NOT_FOR_US = ['55000', '42501', '42703']
