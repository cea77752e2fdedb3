/** Leases prepared sends to a broker, and stores its decisions. `sealpost.send` creates the rows. */
import { arrayLiteral, type Database } from '@sealpost/pg'
import type { EnvelopeId, MeshId, Millis, PeerKey } from '@sealpost/std'
import { withUnicodeNames } from '../members/membership.ts'

/** The channel on which `sealpost.send` notifies brokers when its transaction commits. */
export const PREPARED_CHANNEL = 'sealpost_prepared'

export interface TakenSend {
  readonly id: number
  readonly request: Uint8Array
  /** The number of attempts, including this one. */
  readonly attempts: number
  /** How long ago an earlier attempt began whose outcome is unknown; null if there was none. */
  readonly doubtMs: Millis | null
  readonly isExpired: boolean
}

/** Takes due rows in order, for `leaseMs`. No other broker takes them, or later ones of their lanes, in this time. */
export async function takePreparedSends(
  db: Database,
  { rowsMax, leaseMs }: { readonly rowsMax: number; readonly leaseMs: Millis },
): Promise<TakenSend[]> {
  const rows = await db.run(
    (sql) => sql<TakenSend[]>`
      select id, request, attempts, doubt_seconds * 1000 as "doubtMs", is_expired as "isExpired"
      from take_prepared_sends(${rowsMax}::int, ${leaseMs}::float8 * interval '1 millisecond') order by id`,
  )
  return [...rows]
}

export type PreparedDecision =
  | { readonly id: number; readonly status: 'stored' }
  | { readonly id: number; readonly status: 'refused' | 'in_doubt'; readonly code: string }
  | {
      readonly id: number
      readonly status: 'queued'
      readonly code: string
      readonly retryAfterMs: Millis
      /** Whether the envelope may be stored. */
      readonly isInDoubt: boolean
    }

/** Stores decisions, and releases rows for another attempt. Has no effect on rows that are decided. */
export async function decidePreparedSends(db: Database, decisions: readonly PreparedDecision[]): Promise<void> {
  const column = <T extends string | number | boolean>(read: (decision: PreparedDecision) => T) =>
    arrayLiteral(decisions.map((decision) => String(read(decision))))
  await db.run(
    (sql) => sql`
      update prepared_send p
      set status = d.status, code = nullif(d.code, ''),
        decided_at = case when d.status <> 'queued' then clock_timestamp() end,
        request = case when d.status = 'queued' then p.request end,
        due_at = clock_timestamp() + d.retry_ms * interval '1 millisecond',
        doubt_since = case when d.is_in_doubt then p.doubt_since end
      from unnest(${column(({ id }) => id)}::bigint[], ${column(({ status }) => status)}::text[],
        ${column((one) => ('code' in one ? one.code : ''))}::text[],
        ${column((one) => ('retryAfterMs' in one ? one.retryAfterMs : 0))}::float8[],
        ${column((one) => one.status === 'in_doubt' || (one.status === 'queued' && one.isInDoubt))}::bool[]
      ) as d (id, status, code, retry_ms, is_in_doubt)
      where p.id = d.id and p.status = 'queued'`,
  )
}

/**
 * Announces that this broker looks for prepared sends for the next `forMs`, so that transactions don't notify it.
 * @throws DatabaseError if the role of the broker lacks the privilege
 */
export async function announcePreparedPolling(db: Database, forMs: Millis): Promise<void> {
  await db.run(
    (sql) => sql`
      update cluster set prepared_polled_until = clock_timestamp() + ${forMs}::float8 * interval '1 millisecond'
      where prepared_polled_until is null
        or prepared_polled_until < clock_timestamp() + ${forMs}::float8 * interval '1 millisecond'`,
  )
}

/** Ends the announcement, and wakes the other brokers for what was committed meanwhile. */
export async function endPreparedPolling(db: Database): Promise<void> {
  await db.run(
    (sql) => sql`
      with ended as (update cluster set prepared_polled_until = null returning 1)
      select pg_notify(${PREPARED_CHANNEL}, '') from ended`,
  )
}

export interface PreparedBacklog {
  readonly waiting: number
  /** The age of the oldest waiting row; 0 if there is none. */
  readonly oldestMs: Millis
  /** When the next row is due; null if no row waits. */
  readonly dueInMs: Millis | null
}

export async function readPreparedBacklog(db: Database): Promise<PreparedBacklog> {
  const [row] = await db.run(
    (sql) => sql<PreparedBacklog[]>`
      select count(*)::int as waiting,
        coalesce(extract(epoch from clock_timestamp() - min(queued_at)) * 1000, 0)::float8 as "oldestMs",
        (extract(epoch from min(due_at) - clock_timestamp()) * 1000)::float8 as "dueInMs"
      from prepared_send where status = 'queued'`,
  )
  return row!
}

export interface PreparedSendView {
  readonly id: number
  readonly meshId: MeshId
  readonly envelopeId: EnvelopeId
  readonly sender: PeerKey
  readonly senderName: string | null
  readonly recipient: PeerKey
  readonly recipientName: string | null
  /** 0 `now`, 1 `next`, 2 `low` */
  readonly priority: number
  readonly status: (typeof PREPARED_STATUSES)[number]
  /** Why the send is refused, in doubt or, after an attempt, still queued. */
  readonly code: string | null
  readonly attempts: number
  readonly queuedAtMs: Millis
  readonly expiresAtMs: Millis
  readonly decidedAtMs: Millis | null
}

export const PREPARED_STATUSES = ['queued', 'stored', 'refused', 'in_doubt'] as const

export interface PreparedFilter {
  readonly meshId?: MeshId | undefined
  /** Default: all except `stored`. */
  readonly status?: (typeof PREPARED_STATUSES)[number] | undefined
  readonly limit: number
}

/** Lists prepared sends for operators, newest first, without their contents. */
export async function listPreparedSends(
  db: Database,
  { meshId, status, limit }: PreparedFilter,
): Promise<PreparedSendView[]> {
  const rows = await db.run(
    (sql) => sql<PreparedSendView[]>`
      select p.id, replace(p.mesh_id::text, '-', '') as "meshId", replace(p.envelope_id::text, '-', '') as "envelopeId",
        encode(p.sender, 'hex') as sender, s.name as "senderName", encode(p.recipient, 'hex') as recipient,
        r.name as "recipientName", p.priority, p.status, p.code, p.attempts,
        floor(extract(epoch from p.queued_at) * 1000)::float8 as "queuedAtMs",
        floor(extract(epoch from p.expires_at) * 1000)::float8 as "expiresAtMs",
        floor(extract(epoch from p.decided_at) * 1000)::float8 as "decidedAtMs"
      from prepared_send p
      left join member s on s.mesh_id = p.mesh_id and s.peer_key = p.sender
      left join member r on r.mesh_id = p.mesh_id and r.peer_key = p.recipient
      where (${meshId ?? null}::uuid is null or p.mesh_id = ${meshId ?? null}::uuid)
        and (p.status = ${status ?? null}::text or ${status ?? null}::text is null and p.status <> 'stored')
      order by p.id desc limit ${limit}::int`,
  )
  return withUnicodeNames([...rows])
}

/** The number of decided rows of which the status is kept. */
const DECIDED_MAX = 100_000
const FORGET_MAX = 5_000

/** Deletes decided rows that are older than a day, or more than the maximum. Returns how many, at most 5,000. */
export async function forgetPreparedSends(db: Database): Promise<number> {
  const [row] = await db.run(
    (sql) => sql<{ forgotten: number }[]>`
      with forgotten as (
        delete from prepared_send where id in (
          select id from prepared_send
          where status <> 'queued' and (decided_at < clock_timestamp() - interval '1 day'
            or id <= (select id from prepared_send order by id desc offset ${DECIDED_MAX}::int limit 1))
          order by id limit ${FORGET_MAX}::int
        ) returning 1
      ) select count(*)::int as forgotten from forgotten`,
  )
  return row!.forgotten
}
