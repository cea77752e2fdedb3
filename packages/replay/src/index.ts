/**
 * Reads state and history and keeps reads fast: responses of any length as rows ordered by seq, snapshots, and daily
 * partitions.
 */
export { CopyRowReader, HeaderStrip, type ReplayRow } from './copy-rows.ts'
export { JsonLineWriter } from './line-writer.ts'
export * from './pages.ts'
export * from './retention.ts'
export * from './snapshots.ts'
export { type Base, eventsBetween, REPLAY_SESSION, stateAt, stateNow } from './state-sql.ts'
