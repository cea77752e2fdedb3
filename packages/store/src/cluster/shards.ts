/** Stores the live shards with their leases, and the meshes that operators have pinned to shards. */
import { byteaText, type Database } from '@sealpost/pg'
import { adminAudit, columnNames, execute, mesh, meshPin, shard } from '@sealpost/schema'
import type { MeshId, Millis, PeerKey, ShardId } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import { auditColumns, auditValues } from '../operators/operators.ts'

export interface ShardRegistration {
  readonly name: string
  readonly shardId: ShardId
  /** The address for peers; null if the shard can never be a home shard. */
  readonly url: string | null
  readonly brokerKey: PeerKey
  readonly certificate: Uint8Array | null
}

export interface ListedShard extends ShardRegistration {
  readonly epoch: number
  /** Time left on the shard's lease; negative if the shard is dead. */
  readonly leaseMs: Millis
}

export interface LiveShards {
  /** When this shard's lease ends, in µs of the database clock; null if a newer process has its name. */
  readonly leaseUntil: string | null
  readonly shards: readonly ListedShard[]
  readonly pins: ReadonlyMap<MeshId, string>
}

interface ShardRow extends Omit<ListedShard, 'certificate'> {
  readonly leaseUntil: string
  readonly certificate: Uint8Array | null
}

const FORGET_AFTER = sql`interval '1 day'`

const columns = sql`name, replace(shard_id::text, '-', '') as "shardId", epoch::float8 as epoch, url,
  encode(broker_key, 'hex') as "brokerKey", certificate,
  (extract(epoch from lease_until - clock_timestamp()) * 1000)::float8 as "leaseMs",
  extract(epoch from lease_until)::text as "leaseUntil"`

/**
 * Renews this shard's lease by `leaseMs`. Returns all live shards. A process takes over its name with the first call.
 */
export async function renewShardLease(
  db: Database,
  self: ShardRegistration,
  { leaseMs, isNew }: { leaseMs: Millis; isNew: boolean },
): Promise<LiveShards> {
  const until = sql`clock_timestamp() + ${leaseMs}::float8 * interval '1 millisecond'`
  const id = sql`${self.shardId}::uuid`
  const certificate = self.certificate && byteaText(self.certificate)
  const shards = await execute<ShardRow>(
    db,
    sql`
      with kept as (
        insert into ${shard} (${columnNames(shard.name, shard.shardId, shard.url, shard.brokerKey, shard.certificate, shard.leaseUntil)})
        values (${self.name}, ${id}, ${self.url}::text, ${byteaText(self.brokerKey)}::bytea, ${certificate}::bytea, ${until})
        on conflict (${columnNames(shard.name)}) do update set
          ${columnNames(shard.shardId)} = excluded.shard_id, ${columnNames(shard.url)} = excluded.url,
          ${columnNames(shard.brokerKey)} = excluded.broker_key, ${columnNames(shard.certificate)} = excluded.certificate,
          ${columnNames(shard.leaseUntil)} = excluded.lease_until,
          ${columnNames(shard.epoch)} = ${shard.epoch} + (${shard.shardId} <> excluded.shard_id)::int
        where ${shard.shardId} = excluded.shard_id or ${isNew}::bool
        returning *
      ), deleted as (
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

/** Removes the shard, whose meshes then have other homes immediately. */
export async function removeShard(
  db: Database,
  { name, shardId }: Pick<ShardRegistration, 'name' | 'shardId'>,
): Promise<void> {
  await execute(db, sql`delete from ${shard} where ${shard.name} = ${name} and ${shard.shardId} = ${shardId}::uuid`)
}

export function listShards(db: Database): Promise<ListedShard[]> {
  return execute<ListedShard>(db, sql`select ${columns} from ${shard} order by name`)
}

export async function listPins(db: Database): Promise<Map<MeshId, string>> {
  const rows = await execute<{ meshId: MeshId; name: string }>(
    db,
    sql`select replace(mesh_id::text, '-', '') as "meshId", shard_name as name from ${meshPin} order by mesh_id`,
  )
  return new Map(rows.map(({ meshId, name }) => [meshId, name]))
}

/**
 * Pins the mesh to a shard, which is its home whenever the shard is alive. @returns false if the mesh does not exist
 */
export async function pinMesh(db: Database, meshId: MeshId, name: string): Promise<boolean> {
  const rows = await execute(
    db,
    sql`
      with known as (
        select m.mesh_id from ${mesh} m where m.mesh_id = ${meshId}::uuid
      ), pinned as (
        insert into ${meshPin} (${columnNames(meshPin.meshId, meshPin.shardName)}) select mesh_id, ${name}::text from known
        on conflict (${columnNames(meshPin.meshId)}) do update set ${columnNames(meshPin.shardName)} = excluded.shard_name
        where ${meshPin.shardName} <> excluded.shard_name returning 1
      ), audited as (
        insert into ${adminAudit} (${auditColumns})
        select ${auditValues(null, 'mesh.pin')}, ${meshId}::uuid, ${name}::text, 1 from pinned
      )
      select 1 from known`,
  )
  return rows.length > 0
}

/** @returns false if the mesh was not pinned */
export async function unpinMesh(db: Database, meshId: MeshId): Promise<boolean> {
  const rows = await execute(
    db,
    sql`
      with freed as (
        delete from ${meshPin} where ${meshPin.meshId} = ${meshId}::uuid returning ${meshPin.shardName} as name
      )
      insert into ${adminAudit} (${auditColumns})
      select ${auditValues(null, 'mesh.unpin')}, ${meshId}::uuid, name, 1 from freed returning 1`,
  )
  return rows.length > 0
}
