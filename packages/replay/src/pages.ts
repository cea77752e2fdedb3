/** Short answers: a page of events bounded in rows and bytes, and single entries. */
import type { Database } from '@sealpost/db'
import type { LineRow } from './lines.ts'
import { literal, type Micros, microsOf, ofSpace, type SpaceRef } from './space-ref.ts'

export interface PageRequest {
  readonly space: SpaceRef
  /** What lies behind this seq, the oldest first; */
  readonly after: number
  /** or what lies before this one, from there backwards. */
  readonly before: number | null
  readonly from: Micros
  readonly to: Micros
  readonly limit: number
}

export interface Page {
  readonly rows: readonly LineRow[]
  /** There is more in this direction. */
  readonly hasMore: boolean
}

/** Of records and bodies; one that is larger by itself still comes. */
export const PAGE_BYTES_MAX = 512 * 1024
export const PAGE_ROWS_MAX = 1_000

/** The page's rows ascend by seq in any case. @throws DatabaseError */
export async function readPage(db: Database, { space, after, before, from, to, limit }: PageRequest): Promise<Page> {
  const isBack = before !== null
  const place = isBack ? `seq < ${literal.number(before)} and` : ''
  const order = isBack ? 'desc' : 'asc'
  const rows = await read(
    db,
    `select seq, ${microsOf('at')} as at, kind, record as value, body from (
       select *, sum(octet_length(record) + coalesce(octet_length(body), 0)) over (order by seq ${order}) as total
       from (select * from history_event where ${ofSpace(space)} and ${place} seq > ${literal.number(after)}
           and at >= ${literal.moment(from)} and at <= ${literal.moment(to)}
         order by seq ${order} limit ${literal.number(limit + 1)}) found) counted
     where total - octet_length(record) - coalesce(octet_length(body), 0) <= ${PAGE_BYTES_MAX}
     order by seq ${order}`,
  )
  return cut(rows, limit, isBack)
}

/** The row that goes over the limit comes with the others, to tell that there is more. */
function cut(rows: LineRow[], limit: number, isBack: boolean): Page {
  let bytes = 0
  let count = 0
  for (const { value, body } of rows.slice(0, limit)) {
    bytes += value.length + (body?.length ?? 0)
    if (bytes > PAGE_BYTES_MAX && count > 0) break
    count += 1
  }
  const page = rows.slice(0, count)
  return { rows: isBack ? page.reverse() : page, hasMore: rows.length > count }
}

/** The entries of now under these keys, those that were deleted among them. @throws DatabaseError */
export async function readEntries(db: Database, space: SpaceRef, keyHashes: readonly string[]): Promise<LineRow[]> {
  const keys = keyHashes.map((hash) => `'\\x${hash}'::bytea`).join()
  return read(
    db,
    `select seq, ${microsOf('at')} as at, (case when is_deleted then 2 else 1 end)::smallint as kind,
       entry as value, null::bytea as body
     from state_entry where ${ofSpace(space)} and key_hash in (${keys}) order by seq`,
  )
}

async function read(db: Database, statement: string): Promise<LineRow[]> {
  return [...(await db.run((sql) => sql.unsafe(statement, [], { prepare: false })))] as unknown as LineRow[]
}
