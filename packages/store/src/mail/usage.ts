/**
 * Reports stored amounts to operators: state, history, attachments, the largest use of each quota, and each recipient's
 * backlog.
 */
import type { Database } from '@sealpost/pg'
import { columnNames, execute, messageQueue } from '@sealpost/schema'
import { GROUP_EPOCH_LAST, type GroupId, type MeshId, type Millis, type PeerKey, type PeerNo } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import { withUnicodeNames } from '../members/membership.ts'

export interface SpaceView {
  readonly spaceId: MeshId | GroupId
  readonly owner: PeerKey
  readonly ownerName: string | null
  readonly historyFor: 'none' | 'joined' | 'all'
  /** The number of entries, including deleted ones. */
  readonly entries: number
  readonly entryBytes: number
  /** The total size of all retained events. */
  readonly historyBytes: number
  readonly historyBytesMax: number
  readonly keepSeconds: number
  /** Null without a history. */
  readonly keptSinceMs: Millis | null
  /** The number of daily partitions that may contain the space's events. */
  readonly days: number
  readonly changedAtMs: Millis | null
  readonly snapshot: SnapshotView | null
}

export interface SnapshotView {
  readonly ageMs: Millis
  readonly entries: number
  readonly bytes: number
}

/** The attachments, including expired ones that are not deleted yet. */
export interface AttachmentStats {
  readonly files: number
  readonly bytes: number
  readonly unfinished: number
}

type Row = Omit<SpaceView, 'snapshot'> & {
  readonly snapshotAgeMs: Millis | null
  readonly snapshotEntries: number | null
  readonly snapshotBytes: number | null
}

/** Lists spaces, largest first. */
export async function listSpaceViews(db: Database, meshId: MeshId, limit: number): Promise<SpaceView[]> {
  const rows = await db.run(
    (sql) => sql<Row[]>`
      with days as materialized (
        select to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp at time zone 'UTC' as begins
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'history_event'::regclass and c.relname ~ '_[0-9]{8}$'
      )
      select replace(s.space_id::text, '-', '') as "spaceId", encode(m.peer_key, 'hex') as owner, m.name as "ownerName",
        s.history_for as "historyFor", s.entries, s.entry_bytes::float8 as "entryBytes",
        s.history_bytes::float8 as "historyBytes", s.keep_bytes::float8 as "historyBytesMax", s.keep_seconds as "keepSeconds",
        floor(extract(epoch from s.kept_since) * 1000)::float8 as "keptSinceMs",
        (select count(*)::int from days where begins + interval '1 day' > s.kept_since and begins <= clock_timestamp()) as days,
        floor(extract(epoch from s.last_at) * 1000)::float8 as "changedAtMs",
        floor(extract(epoch from clock_timestamp() - newest.at) * 1000)::float8 as "snapshotAgeMs",
        newest.entries as "snapshotEntries", newest.bytes::float8 as "snapshotBytes"
      from space s
      join member m on m.mesh_id = s.mesh_id and m.peer_no = s.owner
      left join lateral (
        select at, entries, bytes from snapshot b
        where b.mesh_id = s.mesh_id and b.space_id = s.space_id and b.done_at is not null
        order by b.seq desc limit 1) newest on true
      where s.mesh_id = ${meshId}::uuid
      order by s.entry_bytes + s.history_bytes desc, s.space_id limit ${limit}::int`,
  )
  return withUnicodeNames(rows).map(
    ({ snapshotAgeMs: ageMs, snapshotEntries: entries, snapshotBytes: bytes, ...space }) => ({
      ...space,
      snapshot: ageMs === null || entries === null || bytes === null ? null : { ageMs, entries, bytes },
    }),
  )
}

export async function countAttachments(db: Database, meshId: MeshId): Promise<AttachmentStats> {
  const [row] = await db.run(
    (sql) => sql<AttachmentStats[]>`
      select count(*)::int as files, coalesce(sum(bytes), 0)::float8 as bytes,
        (count(*) filter (where completed_at is null))::int as unfinished
      from attachment where mesh_id = ${meshId}::uuid`,
  )
  return row!
}

export interface RetentionStats {
  readonly spaces: number
  readonly entries: number
  readonly entryBytes: number
  readonly historyBytes: number
  readonly snapshotSeconds: number
  /** The number of daily partitions, including future ones. */
  readonly days: number
  readonly files: number
  readonly fileBytes: number
}

/** Reads small tables, which have one row per space, snapshot or file. */
export async function readRetentionStats(db: Database): Promise<RetentionStats> {
  const [row] = await db.run(
    (sql) => sql<RetentionStats[]>`
      select spaces.*, files.*, (
          select count(*)::int from pg_inherits i join pg_class c on c.oid = i.inhrelid
          where i.inhparent = 'history_event'::regclass and c.relname ~ '_[0-9]{8}$') as days, coalesce((
          select extract(epoch from clock_timestamp() - min(newest.at)) from (
            select max(at) as at from snapshot where done_at is not null group by mesh_id, space_id) newest), 0)::float8
          as "snapshotSeconds"
      from (select count(*)::int as spaces, coalesce(sum(entries), 0)::float8 as entries,
          coalesce(sum(entry_bytes), 0)::float8 as "entryBytes", coalesce(sum(history_bytes), 0)::float8 as "historyBytes"
        from space) spaces,
        (select count(*)::int as files, coalesce(sum(bytes), 0)::float8 as "fileBytes" from attachment) files`,
  )
  return row!
}

export interface QuotaUse {
  /** The largest use, by an owner or by a sender in a mailbox. */
  readonly what: 'groups' | 'pools' | 'dead_letters' | 'dead_letter_bytes'
  readonly used: number
  readonly peerKey: PeerKey
}

/** The number at which counting dead letters stops. */
const DEAD_LETTERS_MAX = 100_000

/** Returns the largest use of each quota that is used. Pools that ended within a day count. */
export function findLargestUses(db: Database, meshId: MeshId): Promise<QuotaUse[]> {
  return db.run(
    (sql) => sql<QuotaUse[]>`
      with dead as materialized (
        select sender, count(*) as letters, sum(bytes) as bytes
        from (select recipient, sender, bytes from dead_letter where mesh_id = ${meshId}::uuid limit ${DEAD_LETTERS_MAX}) d
        group by recipient, sender
      ), used as (
        (select 'groups' as what, owner as peer, count(*)::float8 as used from peer_group
         where mesh_id = ${meshId}::uuid and epoch < ${GROUP_EPOCH_LAST} group by owner order by used desc limit 1)
        union all
        (select 'pools', p.owner, count(*)::float8 as used from pool p join member m using (mesh_id, peer_no)
         where p.mesh_id = ${meshId}::uuid and coalesce(m.revoked_at > clock_timestamp() - interval '1 day', true)
         group by p.owner order by used desc limit 1)
        union all
        (select 'dead_letters', sender, letters::float8 from dead order by letters desc limit 1)
        union all
        (select 'dead_letter_bytes', sender, bytes::float8 from dead order by bytes desc limit 1)
      )
      select used.what, used.used, encode(m.peer_key, 'hex') as "peerKey"
      from used join member m on m.mesh_id = ${meshId}::uuid and m.peer_no = used.peer`,
  )
}

/** The part of one recipient's deliveries that is in one page. */
export interface RecipientBacklog {
  readonly meshId: MeshId
  readonly recipient: PeerNo
  readonly depth: number
  /** The number of deliveries leased to a session at that time. */
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
  /** The database clock at the count. */
  readonly nowMs: Millis
}

export const CENSUS_START: CensusCursor = {
  meshId: '00000000000000000000000000000000' as MeshId,
  recipient: -1 as PeerNo,
  priority: -1,
  id: -1,
}

type PageRow = RecipientBacklog & { readonly priority: number; readonly id: number; readonly nowMs: Millis }

/**
 * Counts waiting deliveries per recipient, in pages in primary-key order, so that no statement takes long and nothing
 * is counted on the message path.
 */
export async function readCensusPage(db: Database, from: CensusCursor, rows: number): Promise<CensusPage> {
  const q = messageQueue
  const key = columnNames(q.meshId, q.recipient, q.priority, q.id)
  const found = await execute<PageRow>(
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
