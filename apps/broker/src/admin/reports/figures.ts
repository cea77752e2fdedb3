/** Statistics of the database server, and its write rate between two samples. */
import type { Database } from '@sealpost/pg'
import type { Millis } from '@sealpost/std'
import { type DatabaseStats, readDatabaseStats } from '@sealpost/store'

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

const GOOD_FOR_MS = 5000

export class Cached<T> {
  private readonly look: () => Promise<T>
  private known: { readonly value: T; readonly atMs: Millis } | null = null
  private asking: Promise<T> | null = null

  constructor(look: () => Promise<T>) {
    this.look = look
  }

  async read(): Promise<T> {
    if (this.known && performance.now() - this.known.atMs < GOOD_FOR_MS) return this.known.value
    this.asking ??= this.ask().finally(() => {
      this.asking = null
    })
    return this.asking
  }

  private async ask(): Promise<T> {
    const value = await this.look()
    this.known = { value, atMs: performance.now() }
    return value
  }
}
