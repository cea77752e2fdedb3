/**
 * The driver does all the waiting of a shard, over ports for time, the queue, connections, hints, requests and reports.
 */
export { type ClaimLoopOptions, defaultClaimLoopOptions } from './claim-loop.ts'
export { type BatchLimits, CommitBatches, defaultBatchLimits } from './commit-loop.ts'
export * from './driver.ts'
export * from './ports.ts'
