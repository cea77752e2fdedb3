/** Reads short responses: single entries, and pages with a limited number of rows and bytes. */
import type { Database, Pipeline } from '@sealpost/pg'
import type { Micros, SpaceRef } from '@sealpost/std'
import { type ReplayRow, readCopyRow } from './rows.ts'
import { type Base, formatTimestamp, literal, microsOf, ofSpace } from './sql.ts'

export interface PageRequest {
  readonly space: SpaceRef
  /** Without `before`, the page has the events after this seq, ascending. */
  readonly after: number
  /** If set, the page has the events before this seq, descending. */
  readonly before: number | null
  readonly from: Micros | null
  readonly to: Micros | null
  readonly limit: number
}

export interface EventPage {
  /** The database clock at the read, and the space's newest seq at that time. */
  readonly at: Micros
  readonly lastSeq: number
  readonly rows: readonly PageRow[]
  /** Whether more events follow in this direction. */
  readonly hasMore: boolean
}

interface PageRow {
  readonly seq: number
  readonly line: string
}

/** The maximum size of a page's records and bodies in bytes. A single larger event is returned alone. */
export const PAGE_BYTES_MAX = 512 * 1024
export const PAGE_ROWS_MAX = 1_000

const RECENT_MS = 86_400_000

/**
 * Reads a page. Most pages belong to the last day, so this function reads that day's partitions first. With 30 days,
 * planning a search in all partitions takes twice as long as reading the page.
 * @returns null if the space does not exist
 */
export async function readPage(db: Pipeline, request: PageRequest): Promise<EventPage | null> {
  if (request.from !== null || request.to !== null) return read(db, request, null)
  const recent = await read(db, request, (Date.now() - RECENT_MS) * 1000)
  return recent === null || isWhole(recent, request) ? recent : read(db, request, null)
}

/** Returns whether the page can contain no older event: seqs have no gaps. */
function isWhole({ rows, hasMore, lastSeq }: EventPage, { after, before }: PageRequest): boolean {
  return rows[0]?.seq === after + 1 || (before === null ? lastSeq <= after : hasMore)
}

async function read(db: Pipeline, request: PageRequest, since: Micros | null): Promise<EventPage | null> {
  const reader = new PageReader(request)
  const text = `copy (${pageSql(request, since)}) to stdout (format binary)`
  await db.run((pipe) => pipe.run([{ text, take: (message) => reader.take(message) }]))
  return reader.page
}

/** Reads binary rows and writes each as a line, which takes half as long as with the text driver. */
class PageReader {
  readonly #request: PageRequest
  readonly #rows: PageRow[] = []
  #facts: Pick<EventPage, 'at' | 'lastSeq'> | undefined
  #bytes = 0
  #hasMore = false

  constructor(request: PageRequest) {
    this.#request = request
  }

  take(message: Buffer): void {
    const row = readCopyRow(message)
    if (!row || this.#hasMore) return
    if (row.kind === FACTS) {
      this.#facts = { at: row.at, lastSeq: row.seq }
      return
    }
    this.#bytes += row.value.length + (row.body?.length ?? 0)
    const count = this.#rows.length
    // The first event beyond the limit is only read to show that more follow.
    this.#hasMore = count === this.#request.limit || (count > 0 && this.#bytes > PAGE_BYTES_MAX)
    if (!this.#hasMore) this.#rows.push({ seq: row.seq, line: rowLine(row) })
  }

  get page(): EventPage | null {
    if (!this.#facts) return null
    const rows = this.#request.before === null ? this.#rows : this.#rows.toReversed()
    return { ...this.#facts, rows, hasMore: this.#hasMore }
  }
}

/** The kind of the first row, which contains the newest seq and the time of the read. */
const FACTS = 0
const LAST_SEQ = 'case when last_seq < 0 then -1 - last_seq else last_seq end'
const BYTES = 'octet_length(record) + coalesce(octet_length(body), 0)'

function pageSql({ space, after, before, from, to, limit }: PageRequest, since: Micros | null): string {
  const order = before === null ? 'asc' : 'desc'
  const bounds = [
    `seq > ${literal.number(after)}`,
    `at >= ${from === null ? horizon(space) : literal.moment(from)}`,
    ...(before === null ? [] : [`seq < ${literal.number(before)}`]),
    ...(to === null ? [] : [`at <= ${literal.moment(to)}`]),
    ...(since === null ? [] : [`at >= ${literal.moment(since)}`]),
  ].join(' and ')
  return `select ${LAST_SEQ} as seq, ${microsOf('clock_timestamp()')} as at, ${FACTS}::smallint as kind, ''::bytea as value, null::bytea as body
      from space where ${ofSpace(space)}
    union all (select seq, ${microsOf('at')}, kind, record, body from (
      select *, sum(${BYTES}) over (order by seq ${order}) as total
      from (select * from history_event where ${ofSpace(space)} and ${bounds}
        order by seq ${order} limit ${literal.number(limit + 1)}) found) counted
      where total - (${BYTES}) <= ${PAGE_BYTES_MAX} order by seq ${order})`
}

const horizon = (space: SpaceRef): string =>
  `(select greatest(kept_since, clock_timestamp() - keep_seconds * interval '1 second') from space where ${ofSpace(space)})`

export async function readEntries(db: Database, space: SpaceRef, keyHashes: readonly string[]): Promise<ReplayRow[]> {
  const keys = keyHashes.map((hash) => `'\\x${hash}'::bytea`).join()
  const statement = `select seq, ${microsOf('at')} as at, (case when is_deleted then 2 else 1 end)::smallint as kind,
       entry as value, null::bytea as body
     from state_entry where ${ofSpace(space)} and key_hash in (${keys}) order by seq`
  return [...(await db.run((sql) => sql.unsafe(statement, [], { prepare: false })))] as unknown as ReplayRow[]
}

export interface HistoryBounds {
  readonly now: Micros
  readonly lastSeq: number
  /** Null without a history. */
  readonly keptSince: Micros | null
  readonly keepSeconds: number
}

type TimeRefusal = 'in_future' | 'before_horizon'

/** The age at which every write has certainly been committed or rolled back. */
const SETTLED_MICROS: Micros = 60e6

/** Returns when the readable history begins; null without one. */
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
 * @returns null if there is neither
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

/** Returns whether the first event exists, in a separate query, because it searches every day. */
async function hasFirstEvent(db: Database, space: SpaceRef): Promise<boolean> {
  const [event] = await db.run((sql) =>
    sql.unsafe<{ seq: number }[]>(`select seq from history_event where ${ofSpace(space)} order by seq limit 1`),
  )
  return event?.seq === 1
}

/**
 * Resolves when all earlier writes to the space are committed or rolled back, so that all readers of a recent time see
 * the same rows.
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

/** Writes a row as a JSON line. In Postgres, base64 and escaping would cost three times the rest of the query. */
export function rowLine({ seq, at, kind, value, body }: ReplayRow): string {
  const front = `{"seq":${seq},"at":"${formatTimestamp(at)}","kind":${kind},"value":"${value.toString('base64')}"`
  return body === null ? `${front}}\n` : `${front},"body":"${body.toString('base64')}"}\n`
}

export const jsonLine = (fields: Readonly<Record<string, unknown>>): string => `${JSON.stringify(fields)}\n`
