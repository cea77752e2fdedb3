/** Hints between shards. */
export { BatchingBus, type BatchingBusOptions } from './batching-bus.ts'
export * from './bus.ts'
export { MemoryHub } from './memory.ts'
