/**
 * The statements of replay. All answer in the order of `seq`, whatever they are made from, so that the last seq that was
 * read is the place to go on from.
 *
 * The last values at a moment are a snapshot's rows, but for keys that changed since, and then the last event of each of
 * those. Which keys changed is found once, from the events between: half as many as there are entries at most. Both parts
 * are walked along an index in the order in which their rows lie, past a hash, so that the first row comes as soon as the
 * hash is there (nothing is sorted). `not (… not in …)` because a plain `in` becomes a join, which costs an index
 * search a row: 1.8 s for 40,000 against 0.24 s.
 */
import { literal, type Micros, microsOf, ofSpace, type SpaceRef } from './space-ref.ts'

/** What a state is told from: a snapshot, or with seq 0 the beginning. */
export interface Base {
  readonly seq: number
  readonly at: Micros
}

/** Sessions that run these: nothing but walks along indexes and hashed subplans (see docs/adr/0001-one-plan.md). */
export const REPLAY_SESSION = {
  jit: 'off',
  max_parallel_workers_per_gather: 0,
  enable_seqscan: 'off',
  enable_bitmapscan: 'off',
  enable_sort: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  enable_nestloop: 'off',
  /** A hash of 100,000 keys takes 10 MB; one that is thought to be larger would be no hash but a search for each row. */
  work_mem: '128MB',
} as const

const DAY: Micros = 86_400e6

/**
 * The columns of every answer. kind: 1 set, 2 deleted, 3 a message.
 * seq int8 · at int8, microseconds since 1970 · kind int2 · value bytea · body bytea, of a message
 */
const columns = (kind: string, value: string, body: string): string =>
  `seq, ${microsOf('at')} as at, (${kind})::smallint as kind, ${value} as value, ${body} as body`

export interface StateAt {
  readonly space: SpaceRef
  readonly at: Micros
  /** What lies behind this seq. */
  readonly after: number
  readonly base: Base
}

export function stateAt({ space, at, after, base }: StateAt): string {
  const rows = ofSpace(space)
  const later = `${rows} and seq > ${literal.number(base.seq)} and at <= ${literal.moment(at)}${laterDays(base)}`
  return `with ${changed(later)}
    ${base.seq === 0 ? '' : `(${ofSnapshot(rows, base, after)}) union all `}
    (select ${columns('1', 'record', 'null::bytea')} from history_event
      where ${later} and seq > ${literal.number(after)} and kind = 1 and ${isLast} order by seq)`
}

const changed = (later: string): string =>
  `changed as materialized (select key_hash, max(seq) as seq from history_event where ${later} and kind < 3 group by key_hash)`

const isLast = 'not (seq not in (select seq from changed))'

function ofSnapshot(rows: string, base: Base, after: number): string {
  return `select ${columns('1', 'entry', 'null::bytea')} from snapshot_entry
    where ${rows} and snapshot_seq = ${literal.number(base.seq)} and snapshot_at = ${literal.moment(base.at)}
      and seq > ${literal.number(after)} and key_hash not in (select key_hash from changed) order by seq`
}

/** Leaves out days that hold nothing of it. It is the seq that decides; a day to spare for a clock that was set. */
const laterDays = ({ seq, at }: Base): string => (seq === 0 ? '' : ` and at >= ${literal.moment(at - DAY)}`)

/** The last values of now; behind a seq, with those that were deleted since. */
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
  /** The seq of the last row that stands. */
  readonly progress: number
  readonly rowsMax: number
}

/**
 * The next rows of a snapshot, from the former one and the events since, as one statement. Of two that do it at a time one
 * does nothing. @returns a statement with one row: rows, seq (of the last), or none when the turn was another's
 */
export function snapshotStep({ space, from, to, progress, rowsMax }: SnapshotStep): string {
  const rows = ofSpace(space)
  const itself = `${rows} and seq = ${literal.number(to.seq)} and at = ${literal.moment(to.at)}`
  const later = `${rows} and seq > ${literal.number(from.seq)} and seq <= ${literal.number(to.seq)}${laterDays(from)}`
  const behind = `seq > ${literal.number(progress)}`
  const former = `select key_hash, seq, at, author, entry from snapshot_entry
    where ${rows} and snapshot_seq = ${literal.number(from.seq)} and snapshot_at = ${literal.moment(from.at)}
      and ${behind} and key_hash not in (select key_hash from changed) order by seq`
  return `with turn as materialized (
      select from snapshot where ${itself} and progress = ${literal.number(progress)} and done_at is null
      for update skip locked
    ), ${changed(later)}, written as (
      insert into snapshot_entry (mesh_id, space_id, snapshot_seq, snapshot_at, key_hash, seq, at, author, entry)
      select ${literal.uuid(space.meshId)}, ${literal.uuid(space.spaceId)}, ${literal.number(to.seq)},
        ${literal.moment(to.at)}, key_hash, seq, at, author, entry
      from (${from.seq === 0 ? '' : `(${former}) union all `}(
        select key_hash, seq, at, author, record as entry from history_event
        where ${later} and ${behind} and kind = 1 and ${isLast} order by seq)) as next
      where exists (select from turn) limit ${literal.number(rowsMax)}
      returning seq, octet_length(entry) as bytes
    ), sum as (select count(*)::integer as rows, max(seq) as seq, coalesce(sum(bytes), 0)::bigint as bytes from written)
    update snapshot s set progress = coalesce(sum.seq, s.progress), entries = s.entries + sum.rows,
      bytes = s.bytes + sum.bytes,
      done_at = case when sum.rows < ${literal.number(rowsMax)} then clock_timestamp() end
    from sum where s.${itself.replaceAll(' and ', ' and s.')} and exists (select from turn)
    returning sum.rows, s.progress as seq, s.done_at is not null as "isDone"`
}
