/** One statement of `sql.ts`: its parameters as text, its rows as objects. */
import type { Database } from '@sealpost/db'

export type Parameter = string | number | boolean
export type Row = Record<string, unknown>

export function run<R extends Row>(db: Database, statement: string, parameters: Parameter[]): Promise<R[]> {
  return db.run((sql) => sql.unsafe<R[]>(statement, parameters, { prepare: true }))
}

/** An array of numbers and hex ids, none of which needs quoting. */
export const arrayOf = (items: readonly (string | number | bigint | boolean)[]): string => `{${items.join()}}`
