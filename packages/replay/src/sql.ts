/**
 * Contains the statements of replay. All of them return rows in the order of `seq`, so that a reader can continue from
 * the last seq that it read.
 *
 * The values at a given time are a snapshot's rows followed by the events since the snapshot, without the rows and
 * events that a later event superseded. Each event names its predecessor. The predecessors form one hash of numbers,
 * with at most half as many numbers as there are entries. Everything else is read along an index in storage order and
 * filtered by that hash, so nothing is sorted, and the first row is available as soon as the hash is complete. `offset
 * 0` keeps one hash; otherwise each day's partition would build its own. The first valid snapshot row is found in the
 * index, with a hash of the same numbers.
 */
import { assert, type Micros, type SpaceRef } from '@sealpost/std'

/** The base of a state: a snapshot, or the beginning of the history (seq 0). */
export interface Base {
  readonly seq: number
  readonly at: Micros
}

/** Session settings that allow only index scans and hashed subplans (docs/adr/0001-one-plan.md). */
export const REPLAY_SESSION = {
  jit: 'off',
  max_parallel_workers_per_gather: '0', // Parallel workers would lose the order. A string, because postgres.js omits 0.
  enable_seqscan: 'off',
  enable_bitmapscan: 'off',
  enable_sort: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  enable_nestloop: 'off',
  /** A hash of 100,000 keys takes 10 MB. Above this estimate, Postgres would search for each row. */
  work_mem: '128MB',
} as const

const DAY: Micros = 86_400e6

/**
 * The columns of every response. kind: 1 entry set, 2 entry deleted, 3 message. seq int8 · at int8, microseconds since
 * 1970 · kind int2 · value bytea · body bytea, for a message
 */
const columns = (kind: string, value: string, body: string): string =>
  `seq, ${microsOf('at')} as at, (${kind})::smallint as kind, ${value} as value, ${body} as body`

export interface StateAt {
  readonly space: SpaceRef
  readonly at: Micros
  readonly after: number
  readonly base: Base
}

export function stateAt({ space, at, after, base }: StateAt): string {
  const later = `${ofSpace(space)} and seq > ${literal.number(base.seq)} and at <= ${literal.moment(at)}${laterDays(base)}`
  const wanted = { space, base, later, behind: after }
  return `with ${overtaken(later)}
    select * from (${entriesOf(wanted, columns('1', 'entry', 'null::bytea'), columns('1', 'record', 'null::bytea'))}
    offset 0) known where ${STANDS}`
}

interface Wanted {
  readonly space: SpaceRef
  readonly base: Base
  readonly later: string
  readonly behind: number
}

/**
 * Selects a snapshot's valid rows, then the later values. The oldest rows are superseded first, so the index skips
 * those before the first valid one.
 */
function entriesOf({ space, base, later, behind }: Wanted, ofSnapshot: string, ofEvents: string): string {
  const rest = `seq > ${literal.number(behind)}`
  const events = `(select ${ofEvents} from history_event where ${later} and ${rest} and kind = 1 order by seq)`
  if (base.seq === 0) return events
  const rows = `snapshot_entry where ${ofSpace(space)} and snapshot_seq = ${literal.number(base.seq)}
      and snapshot_at = ${literal.moment(base.at)} and ${rest}`
  return `(select ${ofSnapshot} from ${rows} and seq >= (select seq from ${rows} and ${STANDS} order by seq limit 1)
      order by seq) union all ${events}`
}

const overtaken = (later: string): string =>
  `overtaken as materialized (select former_seq from history_event where ${later} and former_seq is not null)`
const STANDS = 'seq not in (select former_seq from overtaken)'

/** Excludes days before the base. One extra day allows for clock changes; the seq is exact. */
const laterDays = ({ seq, at }: Base): string => (seq === 0 ? '' : ` and at >= ${literal.moment(at - DAY)}`)

/** Selects the current values; after a given seq, also deletions. */
export function stateNow(space: SpaceRef, after: number): string {
  const kind = 'case when is_deleted then 2 else 1 end'
  const standing = after === 0 ? ' and not is_deleted' : ''
  return `select ${columns(kind, 'entry', 'null::bytea')} from state_entry
    where ${ofSpace(space)} and seq > ${literal.number(after)}${standing} order by seq`
}

export interface Between {
  readonly space: SpaceRef
  readonly after: number
  readonly from: Micros
  readonly to: Micros
}

export function eventsBetween({ space, after, from, to }: Between): string {
  return `select ${columns('kind', 'record', 'body')} from history_event
    where ${ofSpace(space)} and seq > ${literal.number(after)}
      and at >= ${literal.moment(from)} and at <= ${literal.moment(to)} order by seq`
}

export interface SnapshotStep {
  readonly space: SpaceRef
  readonly from: Base
  readonly to: Base
  readonly progress: number
  readonly rowsMax: number
}

/**
 * Returns a statement that writes a snapshot's next rows from the previous one and the events since. It returns the
 * number of rows and the last seq; no row if a concurrent call won the race.
 */
export function snapshotStep({ space, from, to, progress, rowsMax }: SnapshotStep): string {
  const rows = ofSpace(space)
  const itself = `${rows} and seq = ${literal.number(to.seq)} and at = ${literal.moment(to.at)}`
  const later = `${rows} and seq > ${literal.number(from.seq)} and seq <= ${literal.number(to.seq)}${laterDays(from)}`
  const wanted = { space, base: from, later, behind: progress }
  const entries = entriesOf(wanted, 'key_hash, seq, at, author, entry', 'key_hash, seq, at, author, record as entry')
  return `with ${overtaken(later)}, turn as materialized (
      select from snapshot where ${itself} and progress = ${literal.number(progress)} and done_at is null
      for update skip locked
    ), written as (
      insert into snapshot_entry (mesh_id, space_id, snapshot_seq, snapshot_at, key_hash, seq, at, author, entry)
      select ${literal.uuid(space.meshId)}, ${literal.uuid(space.spaceId)}, ${literal.number(to.seq)},
        ${literal.moment(to.at)}, key_hash, seq, at, author, entry
      from (${entries} offset 0) as next
      where exists (select from turn) and ${STANDS} limit ${literal.number(rowsMax)}
      returning seq, octet_length(entry) as bytes
    ), sum as (select count(*)::integer as rows, max(seq) as seq, coalesce(sum(bytes), 0)::bigint as bytes from written)
    update snapshot s set progress = coalesce(sum.seq, s.progress), entries = s.entries + sum.rows,
      bytes = s.bytes + sum.bytes,
      done_at = case when sum.rows < ${literal.number(rowsMax)} then clock_timestamp() end
    from sum where s.${itself.replaceAll(' and ', ' and s.')} and exists (select from turn)
    returning sum.rows, s.progress as seq, s.done_at is not null as "isDone"`
}

const MOMENT = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?Z$/

/**
 * Parses an RFC 3339 timestamp in UTC with up to six fractional digits. Limits times to 2255. @returns null for any
 * other string
 */
export function parseTimestamp(text: string): Micros | null {
  const [, seconds, digits = ''] = MOMENT.exec(text) ?? []
  if (seconds === undefined) return null
  const ms = Date.parse(`${seconds}Z`)
  // February 31 would become a day in March.
  if (Number.isNaN(ms) || !new Date(ms).toISOString().startsWith(seconds)) return null
  return Math.min(Number.MAX_SAFE_INTEGER, ms * 1000 + Number(digits.padEnd(6, '0')))
}

/** The last day, because consecutive times share it. */
let day = Number.NaN
let dayText = ''

/** `2026-11-22T01:02:03.123456Z` */
export function formatTimestamp(at: Micros): string {
  const ofDay = ((at % DAY) + DAY) % DAY
  if (at - ofDay !== day) {
    day = at - ofDay
    dayText = new Date(day / 1000).toISOString().slice(0, 11)
  }
  const seconds = Math.floor(ofDay / 1e6)
  const micros = String(ofDay % 1e6).padStart(6, '0')
  return `${dayText}${two(seconds / 3600)}:${two((seconds / 60) % 60)}:${two(seconds % 60)}.${micros}Z`
}

const two = (value: number): string => (value < 10 ? `0${Math.floor(value)}` : String(Math.floor(value)))

/** Formats SQL literals, because `COPY` takes no parameters. */
export const literal = {
  uuid(id: string): string {
    assert(/^[0-9a-f]{32}$/.test(id), 'an id is 32 hex digits')
    return `'${id}'::uuid`
  },
  moment(at: Micros): string {
    assert(Number.isSafeInteger(at), 'a moment is a whole number of microseconds')
    return `'${formatTimestamp(at)}'::timestamptz`
  },
  number(value: number): string {
    assert(Number.isSafeInteger(value), 'a number in a statement is whole')
    return String(value)
  },
}

export const ofSpace = ({ meshId, spaceId }: SpaceRef): string =>
  `mesh_id = ${literal.uuid(meshId)} and space_id = ${literal.uuid(spaceId)}`

/** Returns SQL with `date_part`, whose double is exact to a quarter of a microsecond and costs a fifth of `extract`. */
export const microsOf = (column: string): string => `round(date_part('epoch', ${column}) * 1000000)::bigint`
