/**
 * Reads state and history as rows ordered by seq, and maintains the snapshots and daily partitions that keep reads
 * fast. Every function that takes a `Database` throws `DatabaseError`.
 */
export * from './pages.ts'
export * from './retention.ts'
export { CopyRowReader, HeaderStrip, JsonLineWriter, type ReplayRow } from './rows.ts'
export * from './snapshots.ts'
export { type Base, eventsBetween, formatTimestamp, parseTimestamp, REPLAY_SESSION, stateAt, stateNow } from './sql.ts'
