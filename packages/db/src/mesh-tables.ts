/**
 * Which tables a mesh takes along when it moves. The list is derived: whatever has a `mesh_id` goes, but for what is named
 * here; a table that is added later can't be forgotten.
 */
import { getTableName, is } from 'drizzle-orm'
import { getTableConfig, PgTable } from 'drizzle-orm/pg-core'
import * as schema from './schema.ts'
import * as attachments from './schema-attachments.ts'
import * as history from './schema-history.ts'

export interface MeshTable {
  readonly name: string
  /** Of `name`, as a list for a statement. */
  readonly columns: string
}

/** What a cell knows of a mesh for itself. */
export const STAYS: ReadonlySet<string> = new Set([
  'mesh', // each side has its own row, which says where the mesh is
  'mesh_move',
  'mesh_pin', // names a shard of this cell
  'admin_token', // who may operate this cell
  'admin_audit', // and what was done in it
])

/** Each behind those that it refers to. */
export const meshTables: readonly MeshTable[] = inOrder(
  (Object.values({ ...schema, ...history, ...attachments }) as unknown[])
    .filter((entry) => is(entry, PgTable))
    .filter((table) => columnsOf(table).includes('mesh_id') && !STAYS.has(getTableName(table))),
).map((table) => ({
  name: getTableName(table),
  columns: columnsOf(table)
    .map((column) => `"${column}"`)
    .join(', '),
}))

function columnsOf(table: PgTable): string[] {
  // `copy` takes no value for a generated column.
  return getTableConfig(table)
    .columns.filter(({ generated }) => generated === undefined)
    .map(({ name }) => name)
}

function inOrder(tables: readonly PgTable[]): PgTable[] {
  const ordered: PgTable[] = []
  const add = (table: PgTable) => {
    if (ordered.includes(table)) return
    for (const { reference } of getTableConfig(table).foreignKeys) {
      const { foreignTable } = reference()
      if (foreignTable !== table && tables.includes(foreignTable)) add(foreignTable)
    }
    ordered.push(table)
  }
  for (const table of tables) add(table)
  return ordered
}
