/** What can be answered of a space: which moments, and from what. */

import type { Database } from '@sealpost/pg'
import type { Micros, SpaceRef } from '@sealpost/std'
import { literal, microsOf, ofSpace } from './space-ref.ts'
import type { Base } from './state-sql.ts'

export interface HistoryBounds {
  /** By the database's clock. */
  readonly now: Micros
  readonly lastSeq: number
  /** null: it keeps no history. */
  readonly keptSince: Micros | null
  readonly keepSeconds: number
}

export type TimeRefusal = 'in_future' | 'before_horizon'

/** Nobody writes into a space for longer than a statement may take. */
const SETTLED_MICROS: Micros = 60e6

/** Nothing before it is told. `null`: nothing is. */
export function horizonOf({ now, keptSince, keepSeconds }: HistoryBounds): Micros | null {
  return keptSince === null ? null : Math.max(keptSince, now - keepSeconds * 1e6)
}

/** What no reader may ask. */
export function timeRefusal(facts: HistoryBounds, at: Micros): TimeRefusal | null {
  if (at > facts.now) return 'in_future'
  const horizon = horizonOf(facts)
  return horizon === null || at < horizon ? 'before_horizon' : null
}

/**
 * From what the state at a moment is told: the newest whole snapshot before it, or the very first event.
 * @returns null: neither is there
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

/** Asked by itself: it looks into each day, which takes longer than all else that goes before an answer. */
async function hasFirstEvent(db: Database, space: SpaceRef): Promise<boolean> {
  const [event] = await db.run((sql) =>
    sql.unsafe<{ seq: number }[]>(`select seq from history_event where ${ofSpace(space)} order by seq limit 1`),
  )
  return event?.seq === 1
}

/**
 * Returns when everything that was written into the space up to now is committed or undone, so that who asks about a moment
 * that has only just passed is told what others will be told. @throws DatabaseError
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
