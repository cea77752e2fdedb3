/** Statements written with drizzle's tables, so that a renamed column fails to compile, sent through `Database.run`. */
import { type SQL, sql } from 'drizzle-orm'
import { type PgColumn, PgDialect } from 'drizzle-orm/pg-core'
import type { Database } from './connect.ts'

const dialect = new PgDialect()

export async function execute<Row>(db: Database, statement: SQL): Promise<Row[]> {
  const { sql: text, params } = dialect.sqlToQuery(statement)
  return (await db.run((driver) => driver.unsafe(text, params as string[]))) as unknown as Row[]
}

/** Bare column names: an insert list and `set` take no table in front. */
export function names(...columns: PgColumn[]): SQL {
  return sql.join(
    columns.map((column) => sql.identifier(column.name)),
    sql`, `,
  )
}
