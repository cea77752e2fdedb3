/**
 * The server's own time for each statement, where `pg_stat_statements` is installed. It keeps calls, mean, deviation and the
 * longest, no percentiles: for those there is a bound that holds for every distribution (Cantelli's inequality).
 */
import type { Database } from './connect.ts'
import { DatabaseError } from './database-error.ts'

export interface StatementFigures {
  /** As the server keeps it: with `$1` for what was in it. */
  readonly text: string
  readonly calls: number
  readonly meanMs: number
  readonly deviationMs: number
  /** Since the server counts, be it longer than what the caller looks at. */
  readonly maxMs: number
}

/** 95 % of all calls took less than the mean and so many deviations, however they are distributed: √(0.95 / 0.05). */
const DEVIATIONS_OF_P95 = Math.sqrt(0.95 / 0.05)

/** Milliseconds that p95 is not above. */
export const p95BoundMs = ({ meanMs, deviationMs, maxMs }: StatementFigures): number =>
  Math.min(maxMs, meanMs + DEVIATIONS_OF_P95 * deviationMs)

/**
 * Of this database, those that took the most time in all first. Null: not installed in it, not loaded by the server, or
 * not for this account. @throws DatabaseError
 */
export async function lookAtStatements(db: Database, limit: number): Promise<StatementFigures[] | null> {
  const [installed] = await db.run(
    (sql) => sql<{ schema: string }[]>`
      select n.nspname as schema from pg_extension e join pg_namespace n on n.oid = e.extnamespace
      where e.extname = 'pg_stat_statements'`,
  )
  if (!installed) return null
  try {
    const rows = await db.run(
      (sql) => sql<StatementFigures[]>`
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

/** Not preloaded, no rights, older than `total_exec_time`. */
const NOT_FOR_US = ['55000', '42501', '42703']
