/** Stores attachments in the database: their chunks, their expiry, and who may download them. */
import { arrayLiteral, byteaText, type Database } from '@sealpost/pg'
import {
  type AttachmentId,
  GROUP_EPOCH_LAST,
  type GroupId,
  type MeshId,
  type Millis,
  type PeerKey,
  type PeerNo,
} from '@sealpost/std'

export interface AttachmentRef {
  readonly meshId: MeshId
  readonly id: AttachmentId
}

export interface AttachmentSpec extends AttachmentRef {
  readonly owner: PeerNo
  readonly to: readonly PeerKey[] | GroupId
  /** The size of all sealed chunks. */
  readonly bytes: number
  readonly chunkBytes: number
  readonly store: 'postgres' | 's3'
  /** How long the attachment is retained once it is complete. */
  readonly keepSeconds: number
  /** The time limit of the upload. */
  readonly finishSeconds: number
}

export interface AttachmentQuota {
  readonly perPeer: number
  readonly bytesPerPeer: number
  readonly perMesh: number
  readonly bytesPerMesh: number
}

export type AttachmentOutcome = 'done' | 'taken' | 'peer_quota' | 'mesh_quota' | 'unknown_recipient'

/**
 * Creates an attachment without chunks. Repeating the call has no effect; concurrent calls may exceed the quota by one.
 * @param quota - null for no limit
 */
export async function createAttachment(
  db: Database,
  terms: AttachmentSpec,
  quota: AttachmentQuota | null,
): Promise<{ outcome: AttachmentOutcome; expiresAtMs: Millis }> {
  const { meshId, id, owner, to, bytes, chunkBytes, store, keepSeconds, finishSeconds } = terms
  const [group, keys] = typeof to === 'string' ? [to, []] : [null, to]
  const { perPeer, bytesPerPeer, perMesh, bytesPerMesh } = quota ?? NO_QUOTA
  const [row] = await db.run(
    (sql) => sql<{ outcome: AttachmentOutcome; at: number | null }[]>`
      with existing as materialized (
        select owner, bytes, chunk_bytes, expires_at from attachment
        where mesh_id = ${meshId}::uuid and attachment_id = ${id}::uuid
      ), self as (
        select coalesce(person, peer_no) as person from member where mesh_id = ${meshId}::uuid and peer_no = ${owner}::int
      ), own as materialized (
        select person as peer_no from self
        union all
        select d.peer_no from self join device d on d.mesh_id = ${meshId}::uuid and d.person = self.person
      ), held as (
        select count(*) as n, coalesce(sum(bytes), 0) as bytes, count(*) filter (where owner in (select peer_no from own)) as own_n,
          coalesce(sum(bytes) filter (where owner in (select peer_no from own)), 0) as own_bytes
        from attachment where mesh_id = ${meshId}::uuid and expires_at > clock_timestamp()
      ), readers as (
        select coalesce(array_agg(peer_no), '{}') as numbers from member
        where mesh_id = ${meshId}::uuid and peer_key = any (${arrayLiteral(keys.map(byteaText))}::bytea[])
          and revoked_at is null and not is_pool
      ), judged as (
        select case
          when exists (select from existing) then
            (select case when owner = ${owner}::int and bytes = ${bytes}::bigint and chunk_bytes = ${chunkBytes}::int
              and expires_at > clock_timestamp() then 'existing' else 'taken' end from existing)
          when cardinality(readers.numbers) <> ${keys.length}::int then 'unknown_recipient'
          when held.own_n >= ${perPeer}::bigint or held.own_bytes + ${bytes}::bigint > ${bytesPerPeer}::bigint then 'peer_quota'
          when held.n >= ${perMesh}::bigint or held.bytes + ${bytes}::bigint > ${bytesPerMesh}::bigint then 'mesh_quota'
          else 'done' end as outcome from held, readers
      ), made as (
        insert into attachment
          (mesh_id, attachment_id, owner, recipients, group_id, bytes, chunk_bytes, store, keep_seconds, expires_at)
        select ${meshId}::uuid, ${id}::uuid, ${owner}::int, case when ${group}::uuid is null then readers.numbers end,
          ${group}::uuid, ${bytes}::bigint, ${chunkBytes}::int, ${store}, ${keepSeconds}::int,
          clock_timestamp() + make_interval(secs => ${finishSeconds}::float8)
        from judged, readers where judged.outcome = 'done'
        returning expires_at
      )
      select case outcome when 'existing' then 'done' else outcome end as outcome,
        extract(epoch from coalesce((select expires_at from made), (select expires_at from existing)))::float8 * 1000 as at
      from judged`,
  )
  return { outcome: row!.outcome, expiresAtMs: Math.floor(row!.at ?? 0) }
}

const MANY = Number.MAX_SAFE_INTEGER
const NO_QUOTA: AttachmentQuota = { perPeer: MANY, bytesPerPeer: MANY, perMesh: MANY, bytesPerMesh: MANY }

export interface AttachmentInfo {
  readonly isOwner: boolean
  /** Whether the peer or its user is a recipient. */
  readonly isRecipient: boolean
  /** The recipient group's newest statement; null without such a group. */
  readonly groupStatement: Uint8Array | null
  readonly bytes: number
  readonly chunkBytes: number
  readonly store: 'postgres' | 's3'
  readonly isComplete: boolean
  readonly expiresAtMs: Millis
}

/** Returns the attachment as this peer sees it; undefined if it does not exist or has expired. */
export async function findAttachment(
  db: Database,
  { meshId, id }: AttachmentRef,
  { peer, person }: { peer: PeerNo; person: PeerNo },
): Promise<AttachmentInfo | undefined> {
  const [row] = await db.run(
    (sql) => sql<(AttachmentInfo & { at: number })[]>`
      select a.owner = ${peer}::int as "isOwner", g.statement as "groupStatement", a.bytes, a.chunk_bytes as "chunkBytes",
        coalesce(a.recipients && array[${peer}::int, ${person}::int], false) as "isRecipient", a.store,
        a.completed_at is not null as "isComplete", extract(epoch from a.expires_at)::float8 * 1000 as at
      from attachment a
      left join peer_group g on g.mesh_id = a.mesh_id and g.group_id = a.group_id and g.epoch < ${GROUP_EPOCH_LAST}
      where a.mesh_id = ${meshId}::uuid and a.attachment_id = ${id}::uuid and a.expires_at > clock_timestamp()`,
  )
  if (!row) return undefined
  const { at, ...facts } = row
  return { ...facts, expiresAtMs: Math.floor(at) }
}

export interface Chunk {
  readonly chunkNo: number
  readonly hash: Uint8Array
  /** Null if the chunk is in the S3 store. */
  readonly content: Uint8Array | null
}

/**
 * Stores a chunk of an incomplete attachment; repeating the call has no effect.
 * @returns `differs` if the stored chunk has another hash; `gone` if the attachment accepts no more chunks
 */
export async function putChunk(
  db: Database,
  { meshId, id }: AttachmentRef,
  { chunkNo, hash, content }: Chunk,
): Promise<'done' | 'differs' | 'gone'> {
  const put = () =>
    db.run(
      (sql) => sql<{ isPut: boolean; isSame: boolean | null }[]>`
        with existing as materialized (
          select hash from attachment_chunk
          where mesh_id = ${meshId}::uuid and attachment_id = ${id}::uuid and chunk_no = ${chunkNo}::int
        ), put as (
          insert into attachment_chunk (mesh_id, attachment_id, chunk_no, hash, content)
          select mesh_id, attachment_id, ${chunkNo}::int, ${byteaText(hash)}::bytea,
            ${content === null ? null : hexText(content)}::bytea
          from attachment
          where mesh_id = ${meshId}::uuid and attachment_id = ${id}::uuid and completed_at is null
            and expires_at > clock_timestamp() and not exists (select from existing)
          on conflict do nothing returning true
        )
        select exists (select from put) as "isPut", (select hash = ${byteaText(hash)}::bytea from existing) as "isSame"`,
    )
  const [row] = await put()
  if (row!.isPut || row!.isSame) return 'done'
  if (row!.isSame === false) return 'differs'
  const [again] = await put() // Concurrent calls don't see each other's chunk, but a second attempt does.
  return again!.isPut || again!.isSame ? 'done' : again!.isSame === false ? 'differs' : 'gone'
}

/** Encodes as hex with the platform's encoder, because chunks are large. */
const hexText = (bytes: Uint8Array): string =>
  `\\x${Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('hex')}`

export async function readChunk(
  db: Database,
  { meshId, id }: AttachmentRef,
  chunkNo: number,
): Promise<Chunk | undefined> {
  const [row] = await db.run(
    (sql) => sql<Chunk[]>`
      select chunk_no as "chunkNo", hash, content from attachment_chunk
      where mesh_id = ${meshId}::uuid and attachment_id = ${id}::uuid and chunk_no = ${chunkNo}::int`,
  )
  return row
}

export type ChunkRange = readonly [first: number, last: number]

export async function listChunks(db: Database, { meshId, id }: AttachmentRef): Promise<ChunkRange[]> {
  const rows = await db.run(
    (sql) => sql<{ first: number; last: number }[]>`
      select min(chunk_no) as first, max(chunk_no) as last
      from (select chunk_no, chunk_no - row_number() over (order by chunk_no) as island from attachment_chunk
        where mesh_id = ${meshId}::uuid and attachment_id = ${id}::uuid) numbered
      group by island order by first`,
  )
  return rows.map(({ first, last }) => [first, last])
}

/** Returns the concatenated hashes of the stored chunks, 32 bytes each. */
export async function readChunkHashes(db: Database, { meshId, id }: AttachmentRef): Promise<Uint8Array> {
  const [row] = await db.run(
    (sql) => sql<{ hashes: Uint8Array }[]>`
      select coalesce(string_agg(hash, ''::bytea order by chunk_no), ''::bytea) as hashes from attachment_chunk
      where mesh_id = ${meshId}::uuid and attachment_id = ${id}::uuid`,
  )
  return row!.hashes
}

/** Marks an attachment as complete, which starts its retention. Repeating the call has no effect. */
export async function completeAttachment(db: Database, { meshId, id }: AttachmentRef, hash: Uint8Array): Promise<void> {
  await db.run(
    (sql) => sql`
      update attachment set hash = ${byteaText(hash)}::bytea, completed_at = clock_timestamp(),
        expires_at = clock_timestamp() + make_interval(secs => keep_seconds::float8)
      where mesh_id = ${meshId}::uuid and attachment_id = ${id}::uuid and completed_at is null
        and expires_at > clock_timestamp()`,
  )
}

/** Hides an attachment until the sweep deletes it. @returns whether it belonged to this peer */
export async function expireAttachment(db: Database, { meshId, id }: AttachmentRef, owner: PeerNo): Promise<boolean> {
  const rows = await db.run(
    (sql) => sql`
      update attachment set expires_at = clock_timestamp()
      where mesh_id = ${meshId}::uuid and attachment_id = ${id}::uuid and owner = ${owner}::int
        and expires_at > clock_timestamp() returning true`,
  )
  return rows.length > 0
}

export interface ExpiredAttachment extends AttachmentRef {
  readonly store: 'postgres' | 's3'
  readonly chunks: number
}

/** Lists attachments that expired at least `sinceSeconds` ago, up to `max` per mesh. Omits meshes that are moving. */
export async function listExpiredAttachments(
  db: Database,
  { sinceSeconds, max }: { sinceSeconds: number; max: number },
): Promise<ExpiredAttachment[]> {
  return db.run(
    (sql) => sql<ExpiredAttachment[]>`
      select replace(mesh.mesh_id::text, '-', '') as "meshId", replace(found.attachment_id::text, '-', '') as id, found.store,
        ceil(found.bytes::float8 / found.chunk_bytes)::int as chunks
      from mesh cross join lateral (
        select * from attachment a
        where a.mesh_id = mesh.mesh_id and a.expires_at <= clock_timestamp() - make_interval(secs => ${sinceSeconds}::float8)
        order by a.expires_at limit ${max}::int) found
      where mesh.frozen_at is null`,
  )
}

/**
 * Deletes up to `max` chunks, and after the last chunk the attachment itself. @returns whether the attachment was
 * deleted
 */
export async function deleteAttachment(db: Database, { meshId, id }: AttachmentRef, max: number): Promise<boolean> {
  const gone = await db.run(
    (sql) => sql`
      delete from attachment_chunk where mesh_id = ${meshId}::uuid and attachment_id = ${id}::uuid and chunk_no in (
        select chunk_no from attachment_chunk where mesh_id = ${meshId}::uuid and attachment_id = ${id}::uuid
        order by chunk_no limit ${max}::int)
      returning true`,
  )
  if (gone.length === max) return false
  await db.run((sql) => sql`delete from attachment where mesh_id = ${meshId}::uuid and attachment_id = ${id}::uuid`)
  return true
}
