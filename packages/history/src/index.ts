/** State and history: spaces, their access rules, and the writing of entries. `@sealpost/replay` reads them. */
export * from './entry-writer.ts'
export * from './spaces.ts'
