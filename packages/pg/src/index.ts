/** Connects to Postgres: pools, pipelines, listeners and streams. See README.md. */
export * from './check-server.ts'
export * from './connection.ts'
export {
  type DatabaseAddress,
  DatabaseError,
  keepsConnection,
  NEW_PARTITION,
  notExecuted,
  statementError,
} from './database-error.ts'
export { parseAddress, parseDatabaseUrl, withDatabaseName } from './database-url.ts'
export * from './listener.ts'
export * from './pipeline/copy-out.ts'
export {
  type BoundStatement,
  type PipelineStep,
  type PreparedPipeline,
  type SqlStatement,
  sqlStatement,
  type TextRow,
} from './pipeline/prepared.ts'
export * from './pipeline/streaming.ts'
export * from './pool.ts'
export type { Transport } from './socket.ts'
