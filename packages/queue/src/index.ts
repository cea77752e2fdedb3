/**
 * The queue: group commit (`writer.ts`), the drain worker (`drain.ts`), and behind the interface of `queue.ts` the
 * statements, all in `sql.ts`. `memory.ts` is the same queue without a database, for the simulator.
 */
export { keptOf, type SaidMessage } from './commit-batch.ts'
export * from './decisions.ts'
export * from './drain.ts'
export * from './gathered.ts'
export * from './queue.ts'
export * from './writer.ts'
