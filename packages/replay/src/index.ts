/**
 * What is read of state and history, and what keeps it readable: answers of any length as rows in the order of their seq,
 * snapshots that keep them fast far back, partitions that come and go by the day.
 */
export { CopyRowReader, HeaderStrip, type ReplayRow } from './copy-rows.ts'
export * from './horizon.ts'
export { JsonLineWriter } from './line-writer.ts'
export { jsonLine, rowLine } from './lines.ts'
export * from './pages.ts'
export * from './retention.ts'
export * from './snapshots.ts'
export { formatTimestamp, parseTimestamp } from './space-ref.ts'
export { type Base, eventsBetween, REPLAY_SESSION, stateAt, stateNow } from './state-sql.ts'
