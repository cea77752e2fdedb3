/** One statement: its parameters as text, its rows as objects. */
import type { Database } from '@sealpost/db'
import { OperatingError } from '@sealpost/std'

export type Parameter = string | number | boolean
export type Row = Record<string, unknown>

export function run<R extends Row>(db: Database, statement: string, parameters: Parameter[]): Promise<R[]> {
  return db.run((sql) => sql.unsafe<R[]>(statement, parameters, { prepare: true }))
}

export const meshAway = () =>
  new OperatingError('mesh_away', 'The mesh is on its way to another cell, or lives there.', { retryable: true })
