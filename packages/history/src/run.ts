/** Runs one statement with text parameters; returns its rows as objects. */
import type { Database } from '@sealpost/pg'
import { OperatingError } from '@sealpost/std'

export type TextParameter = string | number | boolean
export type ResultRow = Record<string, unknown>

export function run<R extends ResultRow>(db: Database, statement: string, parameters: TextParameter[]): Promise<R[]> {
  return db.run((sql) => sql.unsafe<R[]>(statement, parameters, { prepare: true }))
}

export const meshMoving = () =>
  new OperatingError('mesh_away', 'The mesh is on its way to another cell, or lives there.', { retryable: true })
