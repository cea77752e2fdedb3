/**
 * The queue: behind the interface of `queue.ts` the statements, all in `sql/`. `memory/` is the same queue without a
 * database, for the simulator.
 */
export * from './batcher.ts'
export * from './postgres/commit-batch.ts'

export * from './queue.ts'
