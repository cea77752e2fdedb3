/**
 * Reads state and history and keeps reads fast: responses of any length as rows ordered by seq, snapshots, and daily
 * partitions. Every function that takes a `Database` throws `DatabaseError`.
 */
export * from './pages.ts'
export * from './retention.ts'
export { CopyRowReader, HeaderStrip, JsonLineWriter, type ReplayRow } from './rows.ts'
export * from './snapshots.ts'
export { type Base, eventsBetween, formatTimestamp, parseTimestamp, REPLAY_SESSION, stateAt, stateNow } from './sql.ts'
