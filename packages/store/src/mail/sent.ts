/** Finds what a member sent and where it is now. The ledger of accepted envelopes leads to the delivery. */
import { arrayLiteral, type Database } from '@sealpost/pg'
import type { EnvelopeId, MemberRef, Millis, PeerKey } from '@sealpost/std'

/**
 * `delayed`: until `dueAtMs`, as the sender asked. `waiting`: for the recipient, and after a failed attempt not before
 * `dueAtMs`. `pushed`: the recipient's session holds it. `dead`: a dead letter. `gone`: settled, or a dead letter that
 * an operator has removed or redriven.
 */
export type SentStatus = 'delayed' | 'waiting' | 'pushed' | 'dead' | 'gone'

export interface SentDelivery {
  readonly envelopeId: EnvelopeId
  readonly status: SentStatus
  /** A peer or a pool. */
  readonly recipient: PeerKey
  readonly enqueuedAtMs: Millis | null
  readonly expiresAtMs: Millis | null
  readonly dueAtMs: Millis | null
  readonly failedAttempts: number
  readonly death: 'expired' | 'strikes' | 'rejected' | null
  readonly diedAtMs: Millis | null
  /** When the recipient's last session began. */
  readonly connectedAtMs: Millis | null
}

/**
 * Finds envelopes of one sender. Omits those that were not accepted, and those that the ledger has forgotten, which it
 * does a day after a delivery has ended. Walks: the primary keys of dedupe_ledger, member, message_queue, dead_letter
 * and session, and delayed_delivery_recipient.
 */
export async function findSent(
  db: Database,
  { meshId, peer }: MemberRef,
  ids: readonly EnvelopeId[],
): Promise<SentDelivery[]> {
  const rows = await db.run(
    (sql) => sql<SentDelivery[]>`
      select replace(i.envelope_id::text, '-', '') as "envelopeId", encode(m.peer_key, 'hex') as recipient,
        case when d.id is not null then 'delayed' when x.reason is not null then 'dead' when q.id is null then 'gone'
          when q.lease_until > clock_timestamp() and (q.lease_holder is not null or q.lease_epoch = s.epoch) then 'pushed'
          else 'waiting' end as status,
        floor(extract(epoch from coalesce(q.enqueued_at, d.enqueued_at)) * 1000)::float8 as "enqueuedAtMs",
        floor(extract(epoch from coalesce(q.expires_at, d.expires_at)) * 1000)::float8 as "expiresAtMs",
        floor(extract(epoch from coalesce(d.due_at, case when q.lease_epoch is null and q.lease_until > clock_timestamp()
          then q.lease_until end)) * 1000)::float8 as "dueAtMs",
        coalesce(q.strikes, 0) as "failedAttempts", x.reason as death,
        floor(extract(epoch from x.died_at) * 1000)::float8 as "diedAtMs",
        floor(extract(epoch from s.opened_at) * 1000)::float8 as "connectedAtMs"
      from unnest(${arrayLiteral(ids)}::uuid[], ${arrayLiteral(ids.map(secondOf))}::bigint[]) as i(envelope_id, second)
      cross join lateral (
        select l.ids[place.at] as id, l.recipients[place.at] as recipient, l.priorities[place.at] as priority
        from dedupe_ledger l cross join lateral (select array_position(l.envelope_ids, i.envelope_id) as at) place
        where l.mesh_id = ${meshId}::uuid and l.sender = ${peer}::int and l.second = i.second and place.at is not null
        limit 1) a
      cross join lateral (select * from member m
        where m.mesh_id = ${meshId}::uuid and m.peer_no = a.recipient offset 0) m
      left join lateral (select * from message_queue q where q.mesh_id = ${meshId}::uuid and q.recipient = a.recipient
        and q.priority = a.priority and q.id = a.id offset 0) q on true
      left join lateral (select d.* from delayed_delivery d
        where d.mesh_id = ${meshId}::uuid and d.recipient = a.recipient and d.id = a.id offset 0) d on true
      left join lateral (select x.reason, x.died_at from dead_letter x
        where x.mesh_id = ${meshId}::uuid and x.recipient = a.recipient and x.id = a.id offset 0) x on true
      left join lateral (select s.epoch, s.opened_at from session s
        where s.mesh_id = ${meshId}::uuid and s.peer_no = a.recipient offset 0) s on true`,
  )
  return [...rows]
}

/** Returns the time of a UUID v7 in steps of 1,024 ms, as the ledger has it. */
const secondOf = (id: EnvelopeId): number => Math.floor(Number.parseInt(id.slice(0, 12), 16) / 1024)
