/** What an operator should know of the database server: who holds it up, what is not cleared away, how fast it writes. */
import type { Millis } from '@sealpost/std'
import type { Database } from './connect.ts'

export interface TableFigures {
  /** Of one in partitions, all of them together. */
  readonly name: string
  readonly partitions: number
  /** As the server counts them, about a second behind. */
  readonly rows: number
  readonly deadRows: number
  /** With its indexes. */
  readonly bytes: number
  readonly vacuumedAtMs: Millis | null
}

export interface SnapshotHolder {
  readonly pid: number
  readonly application: string
  readonly state: string
  readonly seconds: number
}

export interface DatabaseFigures {
  readonly version: string
  readonly bytes: number
  /** Written since the server was made; two looks give a rate. */
  readonly walBytes: number
  readonly connections: number
  /** Of these, of brokers and their tools. */
  readonly ownConnections: number
  readonly connectionsMax: number
  /** The oldest first, three at most. */
  readonly snapshots: readonly SnapshotHolder[]
  /** The largest first. */
  readonly tables: readonly TableFigures[]
}

type Scalars = Omit<DatabaseFigures, 'snapshots' | 'tables'>

/** Three looks into the server's own statistics, a few milliseconds. @throws DatabaseError */
export async function lookAtFigures(db: Database): Promise<DatabaseFigures> {
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
      (sql) => sql<TableFigures[]>`
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
