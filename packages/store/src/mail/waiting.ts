/** Lists the deliveries that wait for a peer, without leasing them. */
import type { Database } from '@sealpost/pg'
import { execute, member, messageQueue, session, sharedBody } from '@sealpost/schema'
import type { EnvelopeId, MeshId, Millis, PeerKey, PeerNo } from '@sealpost/std'
import { sql } from 'drizzle-orm'

export interface WaitingDelivery {
  readonly envelopeId: EnvelopeId
  readonly sender: PeerKey
  /** The index of the priority. */
  readonly priority: number
  readonly attempts: number
  readonly enqueuedAtMs: Millis
  readonly expiresAtMs: Millis
  /** Whether a connection of the peer holds the delivery. */
  readonly isHeld: boolean
  /** The size of the envelope and the shared body. */
  readonly bytes: number
  /** Null if earlier deliveries have reached `contentBytesMax`. */
  readonly envelope: Uint8Array | null
  /** Null without a shared body, and like `envelope`. */
  readonly body: Uint8Array | null
}

interface WaitingQuery {
  readonly limit: number
  readonly contentBytesMax: number
}

/** The maximum number of deliveries to count. */
export const WAITING_COUNT_MAX = 10_000

/** Lists deliveries in the order of claims, without receipts. Walks: message_queue's primary key. */
export function listWaiting(
  db: Database,
  { meshId, peer }: { readonly meshId: MeshId; readonly peer: PeerNo },
  { limit, contentBytesMax }: WaitingQuery,
): Promise<WaitingDelivery[]> {
  return execute<WaitingDelivery>(
    db,
    sql`
      with found as materialized (
        select q.*, octet_length(q.envelope) + coalesce(q.body_bytes, 0) as size
        from ${messageQueue} q
        where q.mesh_id = ${meshId}::uuid and q.recipient = ${peer}::int and ${isMail} and q.expires_at > clock_timestamp()
        order by q.priority, q.id limit ${limit}::int
      ), sized as (
        select f.*, sum(f.size) over (order by f.priority, f.id) <= ${contentBytesMax}::bigint as is_content from found f
      )
      select replace(s.envelope_id::text, '-', '') as "envelopeId", encode(m.peer_key, 'hex') as sender, s.priority,
        s.attempts, floor(extract(epoch from s.enqueued_at) * 1000)::float8 as "enqueuedAtMs",
        floor(extract(epoch from s.expires_at) * 1000)::float8 as "expiresAtMs",
        coalesce(s.lease_until > clock_timestamp() and s.lease_epoch >= o.epoch, false) as "isHeld", s.size as bytes,
        case when s.is_content then s.envelope end as envelope, case when s.is_content then b.bytes end as body
      from sized s
      join ${member} m on m.mesh_id = ${meshId}::uuid and m.peer_no = s.sender
      left join ${session} o on o.mesh_id = ${meshId}::uuid and o.peer_no = ${peer}::int
      left join ${sharedBody} b on b.mesh_id = s.mesh_id and b.sender = s.sender and b.body_id = s.body_id
      order by s.priority, s.id`,
  )
}

/** Counts the deliveries that wait for a peer, up to `WAITING_COUNT_MAX`. */
export async function countWaiting(
  db: Database,
  { meshId, peer }: { readonly meshId: MeshId; readonly peer: PeerNo },
): Promise<number> {
  const [row] = await execute<{ count: number }>(
    db,
    sql`
      select count(*)::int as count from (
        select from ${messageQueue} q
        where q.mesh_id = ${meshId}::uuid and q.recipient = ${peer}::int and ${isMail} and q.expires_at > clock_timestamp()
        limit ${WAITING_COUNT_MAX}::int) waiting`,
  )
  return row!.count
}

/** Receipts have a mark in their terms (`packages/protocol/src/terms.ts`). */
const isMail = sql.raw('not coalesce(get_byte(q.terms, 0) = 2, false)')
