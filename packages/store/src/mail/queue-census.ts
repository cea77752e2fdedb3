/**
 * Counts waiting deliveries per recipient by walking through the queue in the order of its primary key, a few thousand
 * rows per page: no query is long however full the queue is, and nothing is counted on the path of a message.
 */
import type { Database } from '@sealpost/pg'
import { columnNames, execute, messageQueue } from '@sealpost/schema'
import type { MeshId, Millis, PeerNo } from '@sealpost/std'
import { sql } from 'drizzle-orm'

/** Deliveries of one recipient in one page; the next page may have more of them. */
export interface RecipientBacklog {
  readonly meshId: MeshId
  readonly recipient: PeerNo
  readonly depth: number
  /** Leased to a session at that time. */
  readonly held: number
  readonly oldestAtMs: Millis
}

export interface CensusCursor {
  readonly meshId: MeshId
  readonly recipient: PeerNo
  readonly priority: number
  readonly id: number
}

export interface CensusPage {
  readonly backlogs: readonly RecipientBacklog[]
  /** Where the next page begins; null at the end of the queue. */
  readonly next: CensusCursor | null
  /** By the database clock. */
  readonly nowMs: Millis
}

export const CENSUS_START: CensusCursor = {
  meshId: '00000000000000000000000000000000' as MeshId,
  recipient: -1 as PeerNo,
  priority: -1,
  id: -1,
}

type Row = RecipientBacklog & { readonly priority: number; readonly id: number; readonly nowMs: Millis }

/** @throws DatabaseError */
export async function readCensusPage(db: Database, from: CensusCursor, rows: number): Promise<CensusPage> {
  const q = messageQueue
  const key = columnNames(q.meshId, q.recipient, q.priority, q.id)
  const found = await execute<Row>(
    db,
    sql`
      with seen as materialized (
        select ${key}, ${columnNames(q.enqueuedAt)}, ${columnNames(q.leaseUntil)} > clock_timestamp() as is_held from ${q}
        where (${key}) > (${from.meshId}::uuid, ${from.recipient}::int, ${from.priority}::smallint, ${from.id}::bigint)
        order by ${key} limit ${rows}::int
      )
      select replace(mesh_id::text, '-', '') as "meshId", recipient, count(*)::int as depth,
        count(*) filter (where is_held)::int as held,
        floor(extract(epoch from min(enqueued_at)) * 1000)::float8 as "oldestAtMs",
        (array_agg(priority order by priority desc, id desc))[1]::int as priority,
        (array_agg(id order by priority desc, id desc))[1] as id,
        floor(extract(epoch from clock_timestamp()) * 1000)::float8 as "nowMs"
      from seen group by mesh_id, recipient order by seen.mesh_id, recipient`,
  )
  const last = found.at(-1)
  const isEnd = found.reduce((sum, { depth }) => sum + depth, 0) < rows
  const seen = found.map(({ meshId, recipient, depth, held, oldestAtMs }) => ({ meshId, recipient, depth, held, oldestAtMs })) // biome-ignore format: one thing
  if (!last) return { backlogs: seen, next: null, nowMs: 0 }
  const { meshId, recipient, priority, id, nowMs } = last
  return { backlogs: seen, next: isEnd ? null : { meshId, recipient, priority, id }, nowMs }
}
