/** Stores state and history: spaces, their access rules, and entries. `@sealpost/replay` reads them. */
export * from './entry-writer.ts'
export * from './spaces.ts'
