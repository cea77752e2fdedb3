/** Defines column types, and runs statements that are written with drizzle's tables. */

import type { Database } from '@sealpost/pg'
import { type SQL, sql } from 'drizzle-orm'
import { bigint, customType, type PgColumn, PgDialect, timestamp } from 'drizzle-orm/pg-core'

export const bytea = customType<{ data: Uint8Array }>({ dataType: () => 'bytea' })
export const instant = (name: string) => timestamp(name, { withTimezone: true })
export const count = (name: string) => bigint(name, { mode: 'number' })

const dialect = new PgDialect()

/** Runs a statement that drizzle builds, so that a reference to a renamed column fails to compile. */
export async function execute<Row>(db: Database, statement: SQL): Promise<Row[]> {
  const { sql: text, params } = dialect.sqlToQuery(statement)
  return (await db.run((driver) => driver.unsafe(text, params as string[]))) as unknown as Row[]
}

/** Returns column names without their table, as an insert list or `set` requires. */
export function columnNames(...columns: PgColumn[]): SQL {
  return sql.join(
    columns.map((column) => sql.identifier(column.name)),
    sql`, `,
  )
}
