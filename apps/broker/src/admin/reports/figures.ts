/** Statistics of the database server, and its write rate between two samples. */
import type { Database } from '@sealpost/pg'
import type { Millis } from '@sealpost/std'
import { type DatabaseStats, readDatabaseStats } from '@sealpost/store'
import { Cached } from '../cached.ts'

export interface KnownFigures extends DatabaseStats {
  readonly atMs: Millis
  /** Null before the second sample. */
  readonly walBytesPerSecond: number | null
}

export function databaseFigures(db: Database): Cached<KnownFigures> {
  let before: KnownFigures | null = null
  return new Cached(async () => {
    const figures = await readDatabaseStats(db)
    const atMs = performance.now()
    const walBytesPerSecond = before
      ? Math.max(0, (1000 * (figures.walBytes - before.walBytes)) / (atMs - before.atMs))
      : null
    before = { ...figures, atMs, walBytesPerSecond }
    return before
  })
}
