/** State and history: spaces, who may open them, and how entries are written. How they are read again is not here. */
export * from './entry-writer.ts'
export * from './grants.ts'
export * from './space.ts'
export * from './spaces.ts'
