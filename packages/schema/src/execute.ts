/** Runs statements that are written with drizzle's tables, so that a renamed column fails to compile. */
import type { Database } from '@sealpost/pg'
import { type SQL, sql } from 'drizzle-orm'
import { type PgColumn, PgDialect } from 'drizzle-orm/pg-core'

const dialect = new PgDialect()

export async function execute<Row>(db: Database, statement: SQL): Promise<Row[]> {
  const { sql: text, params } = dialect.sqlToQuery(statement)
  return (await db.run((driver) => driver.unsafe(text, params as string[]))) as unknown as Row[]
}

/** Returns column names without a table, for an insert list or `set`. */
export function columnNames(...columns: PgColumn[]): SQL {
  return sql.join(
    columns.map((column) => sql.identifier(column.name)),
    sql`, `,
  )
}
