/**
 * Lists, redrives and purges dead letters for operators, and enforces their limits. Envelopes stay sealed; a row shows
 * the sender, the recipient, the time and the reason.
 */
import { arrayLiteral, byteaText, type Database } from '@sealpost/pg'
import {
  adminAudit,
  columnNames,
  deadLetter,
  deliveryBlock,
  execute,
  member,
  mesh,
  messageQueue,
} from '@sealpost/schema'
import {
  assert,
  type DeliveryId,
  type EnvelopeId,
  ID_BLOCK,
  type MeshId,
  type Millis,
  type PeerKey,
} from '@sealpost/std'
import { type SQL, sql } from 'drizzle-orm'
import { alias } from 'drizzle-orm/pg-core'
import { withUnicodeNames } from '../members/membership.ts'
import { auditColumns, auditValues, type Operator } from '../operators/operators.ts'

export interface DeadLetter {
  readonly meshId: MeshId
  readonly meshName: string
  readonly id: DeliveryId
  readonly envelopeId: EnvelopeId
  readonly sender: PeerKey
  readonly recipient: PeerKey
  readonly senderName: string | null
  readonly recipientName: string | null
  /** 0 `now`, 1 `next`, 2 `low` */
  readonly priority: number
  readonly reason: string
  readonly attempts: number
  readonly strikes: number
  /** The recipient's own reason, if it rejected the delivery. */
  readonly detail: string | null
  readonly enqueuedAtMs: Millis
  readonly diedAtMs: Millis
  /** The size of the sealed envelope; null if the delivery expired, because the envelope is then deleted. */
  readonly bytes: number | null
}

/** Fields combine with AND; an empty filter matches every dead letter. */
export interface DeadLetterFilter {
  readonly ids?: readonly DeliveryId[]
  readonly meshId?: MeshId
  readonly recipient?: PeerKey
  readonly reason?: string
  readonly olderThanSeconds?: number
}

const BATCH = 1_000

const senders = alias(member, 'sender_member')
const recipients = alias(member, 'recipient_member')
const ms = (instant: SQL.Aliased | unknown) => sql`floor(extract(epoch from ${instant}) * 1000)::float8`

/** Lists dead letters, newest first. */
export async function listDeadLetters(db: Database, filter: DeadLetterFilter, limit: number): Promise<DeadLetter[]> {
  const key = (side: typeof senders | typeof recipients) => sql`encode(${side.peerKey}, 'hex')`
  return withUnicodeNames(
    await execute<DeadLetter>(
      db,
      sql`
      select replace(${deadLetter.meshId}::text, '-', '') as "meshId", ${mesh.name} as "meshName", ${deadLetter.id} as id,
        replace(${deadLetter.envelopeId}::text, '-', '') as "envelopeId", ${key(senders)} as sender,
        ${key(recipients)} as recipient, ${senders.name} as "senderName", ${recipients.name} as "recipientName", ${deadLetter.priority} as priority, ${deadLetter.reason} as reason,
        ${deadLetter.attempts} as attempts, ${deadLetter.strikes} as strikes, ${deadLetter.detail} as detail, ${ms(deadLetter.enqueuedAt)} as "enqueuedAtMs",
        ${ms(deadLetter.diedAt)} as "diedAtMs", octet_length(${deadLetter.envelope}) as bytes
      from ${deadLetter}
      join ${mesh} on ${mesh.meshId} = ${deadLetter.meshId}
      join ${member} as ${senders} on ${senders.meshId} = ${deadLetter.meshId} and ${senders.peerNo} = ${deadLetter.sender}
      join ${member} as ${recipients}
        on ${recipients.meshId} = ${deadLetter.meshId} and ${recipients.peerNo} = ${deadLetter.recipient}
      where ${matches(filter)}
      order by ${deadLetter.diedAt} desc, ${deadLetter.id} desc limit ${limit}::int`,
    ),
  )
}

export interface MeshDeadLetters {
  readonly meshId: MeshId
  /** The number of dead letters, counted up to `DEAD_COUNTED_MAX`. */
  readonly count: number
  /** The age of the newest dead letter. */
  readonly latestAgeMs: Millis
}

export const DEAD_COUNTED_MAX = 1000
const DEAD_MESHES_MAX = 500

/** Counts dead letters per mesh, up to `DEAD_COUNTED_MAX` for each. Jumps through the index from mesh to mesh. */
export async function countDeadLetters(db: Database): Promise<MeshDeadLetters[]> {
  return [
    ...(await db.run(
      (sql) => sql<MeshDeadLetters[]>`
        with recursive found as (
          (select mesh_id, 1 as n from dead_letter order by mesh_id limit 1)
          union all
          select (select d.mesh_id from dead_letter d where d.mesh_id > f.mesh_id order by d.mesh_id limit 1), f.n + 1
          from found f where f.mesh_id is not null and f.n < ${DEAD_MESHES_MAX}::int
        )
        select replace(mesh_id::text, '-', '') as "meshId",
          (select count(*)::int from (select from dead_letter d where d.mesh_id = f.mesh_id limit ${DEAD_COUNTED_MAX}::int) c) as count,
          greatest(0, floor(extract(epoch from clock_timestamp() -
            (select max(died_at) from dead_letter d where d.mesh_id = f.mesh_id)) * 1000))::float8 as "latestAgeMs"
        from found f where mesh_id is not null`,
    )),
  ]
}

export interface RedriveResult {
  readonly redriven: number
  readonly left: number
  /** The requested dead letters that were not redriven. Without ids in the filter, at most `REFUSED_MAX`. */
  readonly refused: readonly RefusedRedrive[]
}

export interface RefusedRedrive {
  readonly id: DeliveryId
  readonly reason: RedriveRefusalCode
}

/**
 * - `unknown`: no matching dead letter has this id.
 * - `not_kept`: its envelope was not kept, because the delivery expired.
 * - `recipient_revoked`: its recipient is no longer a member.
 * - `pool_ended`: its pool was deleted.
 * - `busy`: another transaction has locked it; retry later.
 */
export type RedriveRefusalCode = 'unknown' | 'not_kept' | 'recipient_revoked' | 'pool_ended' | 'busy'

export const REFUSED_MAX = 1_000

/**
 * Returns dead letters to the end of their queues for `ttlSeconds`, behind newer messages, where the next poll
 * (`POLL_MS`) finds them. They have one attempt, so that their push is marked as a repeated one, and no failed
 * attempts.
 * @throws DatabaseError; dead letters redriven before the error stay redriven
 */
export async function redriveDeadLetters(
  db: Database,
  filter: DeadLetterFilter,
  { ttlSeconds, operator = null }: { ttlSeconds: number; operator?: Operator },
): Promise<RedriveResult> {
  const redriven: DeliveryId[] = []
  for (;;) {
    const ids = await redriveSome(db, filter, { ttlSeconds, operator })
    redriven.push(...ids)
    if (ids.length < BATCH) break
  }
  const [row] = await execute<{ left: number }>(
    db,
    sql`select count(*)::int as left from ${deadLetter} where ${matches(filter)}`,
  )
  return { redriven: redriven.length, left: row!.left, refused: await refusedOf(db, filter, redriven) }
}

async function refusedOf(
  db: Database,
  filter: DeadLetterFilter,
  redriven: readonly DeliveryId[],
): Promise<RefusedRedrive[]> {
  const { ids = [] } = filter
  const there = await execute<RefusedRedrive>(
    db,
    sql`
      select ${deadLetter.id} as id, case
        when ${deadLetter.envelope} is null then 'not_kept'
        when ${recipients.revokedAt} is null then 'busy'
        when ${recipients.isPool} then 'pool_ended'
        else 'recipient_revoked' end as reason
      from ${deadLetter}
      join ${member} as ${recipients}
        on ${recipients.meshId} = ${deadLetter.meshId} and ${recipients.peerNo} = ${deadLetter.recipient}
      where ${matches(filter)} order by ${deadLetter.id} limit ${Math.max(REFUSED_MAX, ids.length)}::int`,
  )
  const found = new Set([...redriven, ...there.map(({ id }) => id)])
  const unknown = [...new Set(ids)].filter((id) => !found.has(id)).map((id) => ({ id, reason: 'unknown' as const }))
  return [...there, ...unknown].sort((a, b) => a.id - b.id)
}

/** Deletes dead letters. @returns their number @throws DatabaseError; deletions before the error remain */
export async function purgeDeadLetters(
  db: Database,
  filter: DeadLetterFilter,
  operator: Operator = null,
): Promise<number> {
  for (let purged = 0; ; ) {
    const rows = await execute(
      db,
      sql`
        with gone as (
          delete from ${deadLetter} where ctid = any (array(
            select ctid from ${deadLetter} where ${matches(filter)} limit ${BATCH}::int for update skip locked))
          returning ${columnNames(deadLetter.meshId)}
        )${audited('gone', operator, 'dead_letters.purge')}
        select 1 from gone`,
    )
    purged += rows.length
    if (rows.length < BATCH) return purged
  }
}

/** SQL: adds one audit entry for each mesh in the CTE `of`. */
const audited = (of: string, operator: Operator, action: 'dead_letters.purge' | 'dead_letters.redrive'): SQL => sql`
  , audited as (
    insert into ${adminAudit} (${auditColumns})
    select ${auditValues(operator, action)}, mesh_id, null, count(*) from ${sql.raw(of)} group by mesh_id
  )`

/**
 * Deletes up to `max` old dead letters per mesh, even if their recipients were not notified. Scans `dead_letter_died`.
 * @returns how many
 */
export async function deleteOldDeadLetters(
  db: Database,
  { olderThanSeconds, max }: { olderThanSeconds: number; max: number },
): Promise<number> {
  const [row] = await execute<{ forgotten: number }>(
    db,
    sql`
      with due as materialized (
        select found.ctid from ${mesh} cross join lateral (
          select ${deadLetter}.ctid from ${deadLetter}
          where ${deadLetter.meshId} = ${mesh.meshId}
            and ${deadLetter.diedAt} <= clock_timestamp() - make_interval(secs => ${olderThanSeconds}::float8)
          order by ${deadLetter.diedAt} limit ${max}::int for update skip locked) found
      ), gone as (
        delete from ${deadLetter} using due where ${deadLetter}.ctid = due.ctid returning 1
      )
      select count(*)::int as forgotten from gone`,
  )
  return row!.forgotten
}

export interface DeadLetterLimits {
  /** The limit per sender and mailbox. A user and its devices count as one sender. */
  readonly countMax: number
  readonly bytesMax: number
  /** The maximum age of a mailbox's newest dead letter for which limits are checked. */
  readonly youngerThanSeconds: number
}

/**
 * Deletes the oldest dead letters of each sender that exceeds the limits of a mailbox. The newest dead letter is kept
 * regardless of its size. Scans `dead_letter_died` and the primary keys of `dead_letter` and `member`.
 * @returns how many
 */
export async function trimDeadLetters(
  db: Database,
  { countMax, bytesMax, youngerThanSeconds }: DeadLetterLimits,
): Promise<number> {
  const rows = await db.run(
    (sql) => sql`
      with grown as materialized (
        select distinct m.mesh_id, d.recipient from mesh m cross join lateral (
          select l.recipient from dead_letter l where l.mesh_id = m.mesh_id
            and l.died_at > clock_timestamp() - make_interval(secs => ${youngerThanSeconds}::float8)) d
      ), ranked as materialized (
        select l.ctid as place, row_number() over newest as nth,
          sum(l.bytes) over newest as bytes
        from grown g join dead_letter l on l.mesh_id = g.mesh_id and l.recipient = g.recipient
        left join member s on s.mesh_id = l.mesh_id and s.peer_no = l.sender
        window newest as (partition by l.mesh_id, l.recipient, coalesce(s.person, l.sender) order by l.died_at desc, l.id desc)
      )
      delete from dead_letter l using ranked r
      where l.ctid = r.place and (r.nth > ${countMax}::int or (r.nth > 1 and r.bytes > ${bytesMax}::float8))
      returning 1`,
  )
  return rows.length
}

async function redriveSome(
  db: Database,
  filter: DeadLetterFilter,
  { ttlSeconds, operator }: { ttlSeconds: number; operator: Operator },
): Promise<DeliveryId[]> {
  assert(BATCH < ID_BLOCK, 'a block has an id for each row of a batch')
  const block = sql.raw(`'${deliveryBlock.seqName}'`)
  const q = messageQueue
  const columns = columnNames(
    ...[q.meshId, q.recipient, q.priority, q.id, q.sender, q.attempts, q.envelopeId, q.enqueuedAt, q.expiresAt],
    ...[q.terms, q.bodyId, q.bodyBytes, q.envelope],
  )
  const rows = await execute<{ id: DeliveryId }>(
    db,
    sql`
      with chosen as materialized (
        select ctid, (select nextval(${block})) * ${ID_BLOCK}::bigint + row_number() over (order by id) as fresh_id
        from (select ctid, ${columnNames(deadLetter.id)} as id from ${deadLetter}
          where ${matches(filter)} and ${deadLetter.envelope} is not null
            and exists (select from ${member} as ${recipients} where ${recipients.meshId} = ${deadLetter.meshId}
              and ${recipients.peerNo} = ${deadLetter.recipient} and ${recipients.revokedAt} is null)
          order by ${deadLetter.id} limit ${BATCH}::int for update skip locked) as d
      ), taken as (
        delete from ${deadLetter} using chosen where ${deadLetter}.ctid = chosen.ctid
        returning ${deadLetter}.*, chosen.fresh_id
      )${audited('taken', operator, 'dead_letters.redrive')}
      , put as (
        insert into ${q} (${columns})
        select mesh_id, recipient, priority, fresh_id, sender, 1, envelope_id, enqueued_at,
          clock_timestamp() + make_interval(secs => ${ttlSeconds}::float8), terms, body_id, body_bytes, envelope
        from taken
      )
      select id::float8 as id from taken`,
  )
  return rows.map(({ id }) => id)
}

function matches({ ids, meshId, recipient, reason, olderThanSeconds }: DeadLetterFilter): SQL {
  const conditions: SQL[] = [sql`true`]
  if (ids) conditions.push(sql`${deadLetter.id} = any (${arrayLiteral(ids)}::bigint[])`)
  if (meshId) conditions.push(sql`${deadLetter.meshId} = ${meshId}::uuid`)
  if (reason) conditions.push(sql`${deadLetter.reason} = ${reason}`)
  if (recipient)
    conditions.push(sql`${deadLetter.recipient} in (select ${columnNames(member.peerNo)} from ${member}
      where ${member.meshId} = ${deadLetter.meshId} and ${member.peerKey} = ${byteaText(recipient)}::bytea)`)
  if (olderThanSeconds !== undefined)
    conditions.push(sql`${deadLetter.diedAt} <= clock_timestamp() - make_interval(secs => ${olderThanSeconds}::float8)`)
  return sql.join(conditions, sql` and `)
}
