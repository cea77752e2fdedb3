/** Exports the wire format: frames, their two forms, refusals and limits. `docs/PROTOCOL.md` is its specification. */
export * from './codec.ts'
export * from './frames.ts'
export * from './items.ts'
export { isNestedDeeper, type KeyProof } from './json-bounds.ts'
export * from './limits.ts'
export * from './queue-nouns.ts'
export * from './refusals.ts'
export * from './terms.ts'
