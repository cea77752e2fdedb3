/** Hints between shards. */
export * from './bus.ts'
export * from './memory.ts'
