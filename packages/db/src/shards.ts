/** Which shards there are, kept alive by leases of the database's clock, and which meshes an operator pinned to one. */
import type { MeshId, Millis, PeerKey, ShardId } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import { auditColumns, auditOf } from './audit.ts'
import { byteaText } from './column-types.ts'
import type { Database } from './connect.ts'
import { execute, names } from './drizzle-run.ts'
import { mesh, meshPin, shard } from './schema.ts'
import { adminAudit } from './schema-admin.ts'

/** A shard as it tells of itself. */
export interface ShardEntry {
  readonly name: string
  readonly shardId: ShardId
  /** Where peers dial it; null: no mesh has its home there. */
  readonly url: string | null
  readonly brokerKey: PeerKey
  readonly certificate: Uint8Array | null
}

export interface ListedShard extends ShardEntry {
  /** Grows with each process of this name. */
  readonly epoch: number
  /** Until its lease lapses; negative for one that is dead. */
  readonly leaseMs: Millis
}

export interface ShardTable {
  /** How long this shard is listed, by the database's clock to the microsecond; null: a newer process goes by its name. */
  readonly leaseUntil: string | null
  /** Those that are alive, by their names. */
  readonly shards: readonly ListedShard[]
  readonly pins: ReadonlyMap<MeshId, string>
}

interface ShardRow extends Omit<ListedShard, 'certificate'> {
  readonly leaseUntil: string
  readonly certificate: Uint8Array | null
}

/** A name that nobody came back for is forgotten after a day. */
const FORGET_AFTER = sql`interval '1 day'`

const columns = sql`name, replace(shard_id::text, '-', '') as "shardId", epoch::float8 as epoch, url,
  encode(broker_key, 'hex') as "brokerKey", certificate,
  (extract(epoch from lease_until - clock_timestamp()) * 1000)::float8 as "leaseMs",
  extract(epoch from lease_until)::text as "leaseUntil"`

/**
 * Says that this shard is alive for `leaseMs` more, and reads who else is. A newcomer takes its name over from whoever has
 * it; later on it only keeps it. @throws DatabaseError
 */
export async function keepShard(
  db: Database,
  self: ShardEntry,
  { leaseMs, isNew }: { leaseMs: Millis; isNew: boolean },
): Promise<ShardTable> {
  const until = sql`clock_timestamp() + ${leaseMs}::float8 * interval '1 millisecond'`
  const id = sql`${self.shardId}::uuid`
  const certificate = self.certificate && byteaText(self.certificate)
  const shards = await execute<ShardRow>(
    db,
    sql`
      with kept as (
        insert into ${shard} (${names(shard.name, shard.shardId, shard.url, shard.brokerKey, shard.certificate, shard.leaseUntil)})
        values (${self.name}, ${id}, ${self.url}::text, ${byteaText(self.brokerKey)}::bytea, ${certificate}::bytea, ${until})
        on conflict (${names(shard.name)}) do update set
          ${names(shard.shardId)} = excluded.shard_id, ${names(shard.url)} = excluded.url,
          ${names(shard.brokerKey)} = excluded.broker_key, ${names(shard.certificate)} = excluded.certificate,
          ${names(shard.leaseUntil)} = excluded.lease_until,
          ${names(shard.epoch)} = ${shard.epoch} + (${shard.shardId} <> excluded.shard_id)::int
        where ${shard.shardId} = excluded.shard_id or ${isNew}::bool
        returning *
      ), forgotten as (
        delete from ${shard} where ${shard.leaseUntil} < clock_timestamp() - ${FORGET_AFTER} and ${shard.name} <> ${self.name}
      )
      select ${columns} from kept
      union all
      select ${columns} from ${shard} where lease_until > clock_timestamp() and not exists (select from kept where kept.name = ${shard.name})
      order by 1`,
  )
  const leaseUntil = shards.find(({ shardId }) => shardId === self.shardId)?.leaseUntil ?? null
  return { leaseUntil, shards, pins: await listPins(db) }
}

/** The shard goes: its meshes have another home at once. @throws DatabaseError */
export async function leaveShards(
  db: Database,
  { name, shardId }: Pick<ShardEntry, 'name' | 'shardId'>,
): Promise<void> {
  await execute(db, sql`delete from ${shard} where ${shard.name} = ${name} and ${shard.shardId} = ${shardId}::uuid`)
}

/** All that are known, also those that are dead. @throws DatabaseError */
export function listShards(db: Database): Promise<ListedShard[]> {
  return execute<ListedShard>(db, sql`select ${columns} from ${shard} order by name`)
}

/** @throws DatabaseError */
export async function listPins(db: Database): Promise<Map<MeshId, string>> {
  const rows = await execute<{ meshId: MeshId; name: string }>(
    db,
    sql`select replace(mesh_id::text, '-', '') as "meshId", shard_name as name from ${meshPin} order by mesh_id`,
  )
  return new Map(rows.map(({ meshId, name }) => [meshId, name]))
}

/** From then on the mesh is at home there, whenever that shard is alive. @returns false for no such mesh @throws DatabaseError */
export async function pinMesh(db: Database, meshId: MeshId, name: string): Promise<boolean> {
  const rows = await execute(
    db,
    sql`
      with known as (
        select m.mesh_id from ${mesh} m where m.mesh_id = ${meshId}::uuid
      ), pinned as (
        insert into ${meshPin} (${names(meshPin.meshId, meshPin.shardName)}) select mesh_id, ${name}::text from known
        on conflict (${names(meshPin.meshId)}) do update set ${names(meshPin.shardName)} = excluded.shard_name
        where ${meshPin.shardName} <> excluded.shard_name returning 1
      ), audited as (
        insert into ${adminAudit} (${auditColumns})
        select ${auditOf(null, 'mesh.pin')}, ${meshId}::uuid, ${name}::text, 1 from pinned
      )
      select 1 from known`,
  )
  return rows.length > 0
}

/** @returns false if it was pinned nowhere @throws DatabaseError */
export async function unpinMesh(db: Database, meshId: MeshId): Promise<boolean> {
  const rows = await execute(
    db,
    sql`
      with freed as (
        delete from ${meshPin} where ${meshPin.meshId} = ${meshId}::uuid returning ${meshPin.shardName} as name
      )
      insert into ${adminAudit} (${auditColumns})
      select ${auditOf(null, 'mesh.unpin')}, ${meshId}::uuid, name, 1 from freed returning 1`,
  )
  return rows.length > 0
}
