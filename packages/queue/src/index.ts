/**
 * Implements the durable queue: `queue.ts` contains the port, `sql/` the statements. `memory/` implements the port
 * without a database, for the simulator.
 */
export * from './batcher.ts'
export * from './postgres/commit-batch.ts'

export * from './queue.ts'
