/** What is kept beside the mail, as an operator sees it: values, history and its snapshots, attachments. Sizes, never contents. */
import type { GroupId, MeshId, Millis, PeerKey } from '@sealpost/std'
import type { Database } from './connect.ts'

export interface SpaceView {
  readonly spaceId: MeshId | GroupId
  readonly owner: PeerKey
  readonly ownerName: string | null
  readonly historyFor: 'none' | 'joined' | 'all'
  /** Last values, deleted ones among them, and their bytes. */
  readonly entries: number
  readonly entryBytes: number
  /** Of all events that are kept, and how many there may be. */
  readonly historyBytes: number
  readonly historyBytesMax: number
  readonly keepSeconds: number
  /** Null: it keeps no history. */
  readonly keptSinceMs: Millis | null
  /** Partitions that it has events in, or may have. */
  readonly days: number
  readonly changedAtMs: Millis | null
  readonly snapshot: SnapshotView | null
}

export interface SnapshotView {
  readonly ageMs: Millis
  readonly entries: number
  readonly bytes: number
}

/** Those that are over among them, until they are taken away. */
export interface AttachmentFigures {
  readonly files: number
  readonly bytes: number
  /** Of these, not complete yet. */
  readonly unfinished: number
}

type Row = Omit<SpaceView, 'snapshot'> & {
  readonly snapshotAgeMs: Millis | null
  readonly snapshotEntries: number | null
  readonly snapshotBytes: number | null
}

/** The largest first. @throws DatabaseError */
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
  return rows.map(({ snapshotAgeMs: ageMs, snapshotEntries: entries, snapshotBytes: bytes, ...space }) => ({
    ...space,
    snapshot: ageMs === null || entries === null || bytes === null ? null : { ageMs, entries, bytes },
  }))
}

/** @throws DatabaseError */
export async function countAttachments(db: Database, meshId: MeshId): Promise<AttachmentFigures> {
  const [row] = await db.run(
    (sql) => sql<AttachmentFigures[]>`
      select count(*)::int as files, coalesce(sum(bytes), 0)::float8 as bytes,
        (count(*) filter (where completed_at is null))::int as unfinished
      from attachment where mesh_id = ${meshId}::uuid`,
  )
  return row!
}

/** Of all meshes together. */
export interface KeptFigures {
  readonly spaces: number
  readonly entries: number
  readonly entryBytes: number
  readonly historyBytes: number
  /** Of the newest snapshot, in the space where it is oldest; 0: there is none. */
  readonly snapshotSeconds: number
  /** Partitions of a day that are there, those of days to come among them. */
  readonly days: number
  readonly files: number
  readonly fileBytes: number
}

/** One look at small tables: a row for each space, snapshot and file. @throws DatabaseError */
export async function lookAtKept(db: Database): Promise<KeptFigures> {
  const [row] = await db.run(
    (sql) => sql<KeptFigures[]>`
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
