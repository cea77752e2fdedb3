/** Hints between shards. */
export * from './bus.ts'
export { GatheredBus, type GatheredBusOptions } from './gathered-bus.ts'
export { MemoryHub } from './memory.ts'
export type * from './wire.ts'
