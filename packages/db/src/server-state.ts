/** What an operator may have set, forgotten or put between: read once, for whoever looks for the reason of something. */

import type { Millis } from '@sealpost/std'
import { getTableConfig, PgTable } from 'drizzle-orm/pg-core'
import type { Database } from './connect.ts'
import * as schema from './schema.ts'
import * as schemaAdmin from './schema-admin.ts'

export interface ServerState {
  readonly autovacuum: boolean
  /** Ahead of this machine's. */
  readonly clockAheadMs: Millis
  /** Slots that nobody reads: they keep WAL, and rows, without end. */
  readonly abandonedSlots: readonly string[]
  readonly preparedTransactions: number
}

/** @throws DatabaseError */
export async function lookAtServer(db: Database): Promise<ServerState> {
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

/** Names of indexes that the tables should have, and that are absent or were left half made. @throws DatabaseError */
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

const tables = (): PgTable[] => {
  const named: unknown[] = [...Object.values(schema), ...Object.values(schemaAdmin)]
  return named.filter((each) => each instanceof PgTable)
}
