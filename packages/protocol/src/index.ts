/** The wire: frames, their two forms, refusals and limits. Runs anywhere. `docs/PROTOCOL.md` is its specification. */
export * from './codec.ts'
export * from './frames.ts'
export * from './limits.ts'
export * from './pool-boxes.ts'
export * from './queue-nouns.ts'
export * from './refusals.ts'
export * from './terms.ts'
export * from './version.ts'
