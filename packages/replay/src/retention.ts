/**
 * Applies the retention of history in whole UTC days. Partitions are created in advance and dropped when no space needs
 * them. A space above its time or byte limit gives up its oldest days, and `kept_since` then hides them.
 */

import type { Database } from '@sealpost/pg'
import type { Micros, SpaceRef } from '@sealpost/std'
import { literal, microsOf, ofSpace } from './sql.ts'

const DAY: Micros = 86_400e6
const DAYS_AHEAD = 7
const CLEARED_AT_ONCE = 5_000

/** Creates the missing partitions for today and the coming days. Leaves failures to the next run. */
export async function makeDays(db: Database): Promise<number> {
  const days = await db.run(
    (sql) => sql<{ day: string }[]>`
      select to_char(day, 'YYYY-MM-DD') as day
      from generate_series((clock_timestamp() at time zone 'UTC')::date, (clock_timestamp() at time zone 'UTC')::date + ${DAYS_AHEAD}::int, interval '1 day') day
      where to_regclass('history_event' || to_char(day, '_YYYYMMDD')) is null
        or to_regclass('snapshot_entry' || to_char(day, '_YYYYMMDD')) is null`,
  )
  let made = 0
  for (const { day } of days) if (await isDone(db, `select add_history_day('${day}')`)) made += 1
  return made
}

/** Returns the spaces that keep history and are not moving to another cell. */
export async function findKept(db: Database): Promise<SpaceRef[]> {
  return [
    ...(await db.run(
      (sql) => sql<SpaceRef[]>`
        select replace(mesh_id::text, '-', '') as "meshId", replace(space_id::text, '-', '') as "spaceId"
        from space where kept_since is not null and last_seq >= 0`,
    )),
  ]
}

interface Keeping {
  readonly keptSince: Micros
  readonly oldest: Micros
  readonly historyBytes: number
  readonly keepBytes: number
  /** When the first complete snapshot was made, before which no history is needed. */
  readonly baseAt: Micros | null
}

/** Moves a space's horizon to its first retained day. */
export async function giveUpDays(db: Database, space: SpaceRef): Promise<void> {
  const [keeping] = await db.run((sql) =>
    sql.unsafe<Keeping[]>(
      `select ${microsOf('kept_since')} as "keptSince", history_bytes as "historyBytes", keep_bytes as "keepBytes",
         ${microsOf('clock_timestamp() - make_interval(secs => keep_seconds)')} as oldest,
         (select ${microsOf('min(at)')} from snapshot where ${ofSpace(space)} and done_at is not null) as "baseAt"
       from space where ${ofSpace(space)} and kept_since is not null and last_seq >= 0`,
    ),
  )
  if (!keeping || keeping.baseAt === null) return
  const dueTo = startOfDay(keeping.oldest)
  const isTooLarge = keeping.historyBytes > keeping.keepBytes
  if (dueTo <= keeping.keptSince && !isTooLarge) return
  const days = await bytesOfDays(db, space, isTooLarge ? null : dueTo)
  const to = isTooLarge ? Math.max(dueTo, fittingDay(days, keeping)) : dueTo
  if (to <= keeping.keptSince || to < keeping.baseAt) return
  const gone = days.filter(({ day }) => day < to && day + DAY > keeping.keptSince)
  const bytes = gone.reduce((sum, day) => sum + day.bytes, 0)
  await db.run((sql) =>
    sql.unsafe(
      `update space set kept_since = ${literal.moment(to)}, history_bytes = greatest(0, history_bytes - ${literal.number(bytes)})
       where ${ofSpace(space)} and last_seq >= 0 and kept_since = ${literal.moment(keeping.keptSince)}`,
    ),
  )
}

interface DayBytes {
  readonly day: Micros
  readonly bytes: number
}

async function bytesOfDays(db: Database, space: SpaceRef, before: Micros | null): Promise<DayBytes[]> {
  const bounds = before === null ? '' : ` and at < ${literal.moment(before)}`
  return [
    ...(await db.run(
      (sql) =>
        sql.unsafe<DayBytes[]>(
          `select ${microsOf("date_trunc('day', at, 'UTC')")} as day,
             sum(octet_length(record) + coalesce(octet_length(body), 0))::bigint as bytes
           from history_event where ${ofSpace(space)}${bounds} group by 1 order by 1`,
        ),
      { timeoutMs: 60_000 },
    )),
  ]
}

/** Returns the oldest day from which all days fit within the limit; the newest one if none does. */
function fittingDay(days: readonly DayBytes[], { keepBytes }: Keeping): Micros {
  let sum = 0
  for (const [i, { bytes }] of [...days.entries()].reverse()) {
    sum += bytes
    if (sum > keepBytes) return (days[i + 1] ?? days[i]!).day
  }
  return days[0]?.day ?? 0
}

/**
 * Drops the daily partitions that no space needs. A space needs the rows since its newest snapshot before its horizon.
 */
export async function dropDays(db: Database): Promise<number> {
  const [row] = await db.run(
    (sql) => sql<{ needed: Micros; days: string[] }[]>`
      with needed as materialized (
        select coalesce(min(coalesce(b.at, s.kept_since)), clock_timestamp()) as at
        from space s left join lateral (select max(at) as at from snapshot b where b.mesh_id = s.mesh_id
            and b.space_id = s.space_id and b.done_at is not null and b.at <= s.kept_since) b on true
        where s.kept_since is not null
      )
      select ${sql.unsafe(microsOf('needed.at'))} as needed, array(
        select to_char(to_date(right(c.relname, 8), 'YYYYMMDD'), 'YYYY-MM-DD')
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent in ('history_event'::regclass, 'snapshot_entry'::regclass) and c.relname ~ '_[0-9]{8}$'
          and (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC' <= needed.at
          and to_date(right(c.relname, 8), 'YYYYMMDD') < (clock_timestamp() at time zone 'UTC')::date - 1
        group by 1 order by 1)::text[] as days
      from needed`,
  )
  let dropped = 0
  for (const day of daysOf(row!.days)) if (await isDone(db, `select drop_history_day('${day}')`)) dropped += 1
  await clearWithout(db, startOfDay(row!.needed))
  return dropped
}

/** Parses an array, which arrives as text because the driver's lookup of array types is off. */
const daysOf = (days: readonly string[] | string): string[] =>
  typeof days === 'string' ? days.slice(1, -1).split(',').filter(Boolean) : [...days]

/** Deletes the rows outside the daily partitions, and snapshots whose rows were dropped. */
async function clearWithout(db: Database, needed: Micros): Promise<void> {
  const before = literal.moment(needed)
  await db.run((sql) => sql.unsafe(`delete from snapshot where at < ${before}`))
  const yesterday = await db.run((sql) =>
    sql.unsafe<{ is: boolean }[]>(`select ${before} < clock_timestamp() - interval '25 hours' as is`),
  )
  if (!yesterday[0]?.is) return
  for (;;) {
    const [row] = await db.run((sql) =>
      sql.unsafe<{ cleared: number }[]>(`select clear_undated_history(${before}, ${CLEARED_AT_ONCE}) as cleared`),
    )
    if (!row || row.cleared < CLEARED_AT_ONCE) return
  }
}

const startOfDay = (at: Micros): Micros => at - (at % DAY)

/** Returns false if a lock or a row prevented the change, which the next run repeats. */
async function isDone(db: Database, statement: string): Promise<boolean> {
  try {
    await db.run((sql) => sql.unsafe(statement))
    return true
  } catch (error) {
    const { sqlstate } = error as { sqlstate?: string }
    if (sqlstate === '55P03' || sqlstate === '23514' || sqlstate === '40P01' || sqlstate === '42P07') return false
    throw error
  }
}
