/** What the database server says of itself, asked for by operators and at most once in five seconds. */
import { type Database, type DatabaseFigures, lookAtFigures } from '@sealpost/db'
import type { Millis } from '@sealpost/std'

const GOOD_FOR_MS = 5000

export interface KnownFigures extends DatabaseFigures {
  readonly atMs: Millis
  /** Null before the second look. */
  readonly walBytesPerSecond: number | null
}

export class Figures {
  private readonly db: Database
  private known: KnownFigures | null = null
  private asking: Promise<KnownFigures> | null = null

  constructor(db: Database) {
    this.db = db
  }

  /** @throws DatabaseError */
  async read(): Promise<KnownFigures> {
    if (this.known && performance.now() - this.known.atMs < GOOD_FOR_MS) return this.known
    this.asking ??= this.look().finally(() => {
      this.asking = null
    })
    return this.asking
  }

  private async look(): Promise<KnownFigures> {
    const figures = await lookAtFigures(this.db)
    const { known } = this
    const atMs = performance.now()
    const walBytesPerSecond = known
      ? Math.max(0, (1000 * (figures.walBytes - known.walBytes)) / (atMs - known.atMs))
      : null
    this.known = { ...figures, atMs, walBytesPerSecond }
    return this.known
  }
}
