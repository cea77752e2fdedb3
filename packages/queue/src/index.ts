/**
 * The durable queue: the port in `queue.ts`, its statements in `sql/`. `memory/` implements the port without a database,
 * for the simulator.
 */
export * from './batcher.ts'
export * from './postgres/commit-batch.ts'

export * from './queue.ts'
