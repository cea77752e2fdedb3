/** The times that a space can answer, and from which rows. */

import type { Database } from '@sealpost/pg'
import type { Micros, SpaceRef } from '@sealpost/std'
import { literal, microsOf, ofSpace } from './space-ref.ts'
import type { Base } from './state-sql.ts'

export interface HistoryBounds {
  readonly now: Micros
  readonly lastSeq: number
  /** null: it keeps no history. */
  readonly keptSince: Micros | null
  readonly keepSeconds: number
}

export type TimeRefusal = 'in_future' | 'before_horizon'

/** Longer than any write can take. */
const SETTLED_MICROS: Micros = 60e6

/** Returns the time before which nothing can be read; `null`: no history. */
export function horizonOf({ now, keptSince, keepSeconds }: HistoryBounds): Micros | null {
  return keptSince === null ? null : Math.max(keptSince, now - keepSeconds * 1e6)
}

export function timeRefusal(facts: HistoryBounds, at: Micros): TimeRefusal | null {
  if (at > facts.now) return 'in_future'
  const horizon = horizonOf(facts)
  return horizon === null || at < horizon ? 'before_horizon' : null
}

/**
 * Returns the base of a state at a time: the newest complete snapshot before it, or the first event.
 * @returns null without either
 * @throws DatabaseError
 */
export async function findBase(db: Database, space: SpaceRef, at: Micros): Promise<Base | null> {
  const [snapshot] = await db.run((sql) =>
    sql.unsafe<Base[]>(
      `select seq, ${microsOf('at')} as at from snapshot
       where ${ofSpace(space)} and done_at is not null and at <= ${literal.moment(at)} order by at desc limit 1`,
    ),
  )
  if (snapshot) return { seq: snapshot.seq, at: snapshot.at }
  return (await hasFirstEvent(db, space)) ? { seq: 0, at: 0 } : null
}

/** A separate query: it searches each day, which takes longer than the rest of a request's preparation. */
async function hasFirstEvent(db: Database, space: SpaceRef): Promise<boolean> {
  const [event] = await db.run((sql) =>
    sql.unsafe<{ seq: number }[]>(`select seq from history_event where ${ofSpace(space)} order by seq limit 1`),
  )
  return event?.seq === 1
}

/**
 * Resolves when all writes to the space up to now are committed or rolled back, so that all readers of a time that has
 * just passed get the same. @throws DatabaseError
 */
export async function awaitOpenWrites(
  db: Database,
  space: SpaceRef,
  { now }: HistoryBounds,
  at: Micros,
): Promise<void> {
  if (at < now - SETTLED_MICROS) return
  await db.run((sql) => sql.unsafe(`select from space where ${ofSpace(space)} for share`))
}
