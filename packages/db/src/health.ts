/** What slows a queue down before anybody sees why: dead rows, and whoever keeps them from being cleared away. */
import type { Database } from './connect.ts'
import { type Origin, originOf } from './origin.ts'

export interface DatabaseHealth {
  /** Null while brokers have not decided on this server. */
  readonly origin: Origin | null
  /**
   * Age of the oldest transaction whose snapshot keeps dead rows, prepared ones included; 0: there is none. Without
   * the role `pg_read_all_stats` those of other accounts are not seen.
   */
  readonly snapshotSeconds: number
  /** Rows of the queue, of sessions and of marks that are dead and not cleared away, as the server counts. */
  readonly deadRows: number
}

interface Row {
  server: string | null
  noted: string | null
  incarnation: string
  snapshotSeconds: number
  deadRows: number
}

/** One look, about a millisecond. @throws DatabaseError */
export async function lookAtHealth(db: Database): Promise<DatabaseHealth> {
  const [row] = await db.run(
    (sql) => sql<Row[]>`
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
  return { origin: originOf([server, noted, incarnation]), snapshotSeconds: snapshotSeconds ?? 0, deadRows }
}
