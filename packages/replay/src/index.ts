/**
 * What is read of state and history, and what keeps it readable: answers of any length as rows in the order of their seq,
 * snapshots that keep them fast far back, partitions that come and go by the day.
 */
export { CopyRows, HeaderStrip, type Row } from './copy-rows.ts'
export { LineWriter } from './line-writer.ts'
export { lineOf, otherLine } from './lines.ts'
export * from './moments.ts'
export * from './pages.ts'
export * from './retention.ts'
export * from './snapshots.ts'
export { type Micros, momentText, readMoment, type SpaceRef } from './space-ref.ts'
export { type Base, eventsBetween, REPLAY_SESSION, stateAt, stateNow } from './state-sql.ts'
