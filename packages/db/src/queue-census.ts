/**
 * Counts what waits, recipient by recipient, on a walk through the queue in the order of its primary key: a few thousand
 * rows at a look, so that no look is long however much waits, and nothing is counted on the path of a message.
 */
import type { MeshId, Millis, PeerNo } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import type { Database } from './connect.ts'
import { execute, names } from './drizzle-run.ts'
import { messageQueue } from './schema.ts'

/** Deliveries of one recipient that a look has seen; the rest of them may follow in the next one. */
export interface SeenWaiting {
  readonly meshId: MeshId
  readonly recipient: PeerNo
  readonly depth: number
  /** Of these, leased to a session at that moment. */
  readonly held: number
  readonly oldestAtMs: Millis
}

export interface CensusPlace {
  readonly meshId: MeshId
  readonly recipient: PeerNo
  readonly priority: number
  readonly id: number
}

export interface CensusLook {
  readonly seen: readonly SeenWaiting[]
  /** Where the next look begins; null: the queue ended here. */
  readonly reached: CensusPlace | null
  /** By the database's clock. */
  readonly nowMs: Millis
}

export const CENSUS_START: CensusPlace = {
  meshId: '00000000000000000000000000000000' as MeshId,
  recipient: -1 as PeerNo,
  priority: -1,
  id: -1,
}

type Row = SeenWaiting & { readonly priority: number; readonly id: number; readonly nowMs: Millis }

/** @throws DatabaseError */
export async function lookAtQueue(db: Database, from: CensusPlace, rows: number): Promise<CensusLook> {
  const q = messageQueue
  const key = names(q.meshId, q.recipient, q.priority, q.id)
  const found = await execute<Row>(
    db,
    sql`
      with seen as materialized (
        select ${key}, ${names(q.enqueuedAt)}, ${names(q.leaseUntil)} > clock_timestamp() as is_held from ${q}
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
  if (!last) return { seen, reached: null, nowMs: 0 }
  const { meshId, recipient, priority, id, nowMs } = last
  return { seen, reached: isEnd ? null : { meshId, recipient, priority, id }, nowMs }
}
