/** The database: its tables, how to reach it, how to bring it up to date, and who is enrolled. */
export * from './access-tokens.ts'
export * from './admin.ts'
export * from './admin-tokens.ts'
export * from './audit.ts'
export * from './cells.ts'
export * from './check-server.ts'
export * from './column-types.ts'
export {
  type Database,
  type DatabaseOptions,
  openDatabase,
  openPipeline,
  type Pipeline,
} from './connect.ts'
export * from './consent.ts'
export { type Address, DatabaseError } from './database-error.ts'
export * from './database-figures.ts'
export * from './dead-letters.ts'
export * from './devices.ts'
export * from './groups.ts'
export * from './health.ts'
export * from './incarnation.ts'
export * from './key-bindings.ts'
export type { Sql } from './lane.ts'
export * from './listener.ts'
export * from './membership.ts'
export * from './mesh-changes.ts'
export * from './mesh-move.ts'
export type { MeshPlace, MovePhase, MoveRow } from './mesh-move-steps.ts'
export * from './mesh-views.ts'
export * from './migrate.ts'
export type { PipeRow, Step } from './pipe-lane.ts'
export * from './pools.ts'
export * from './queue-census.ts'
export * from './roles.ts'
export * as schema from './schema.ts'
export * from './shards.ts'
export * from './successions.ts'
