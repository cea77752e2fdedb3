/** What operators see of meshes: members, groups, pools and invites, but no messages. */
import { arrayLiteral, byteaText, type Database } from '@sealpost/pg'
import { consent, execute, invite, member, mesh, peerGroup, pool, session } from '@sealpost/schema'
import {
  GROUP_EPOCH_LAST,
  type GroupId,
  type InviteId,
  type MeshId,
  type Millis,
  type PeerKey,
  type PeerNo,
  type PoolId,
  type ShardId,
} from '@sealpost/std'
import { type SQL, sql } from 'drizzle-orm'
import { alias, type PgColumn } from 'drizzle-orm/pg-core'

export interface MeshEntry {
  readonly meshId: MeshId
  readonly name: string
  readonly createdAtMs: Millis
}

export interface PeerEntry {
  readonly peer: PeerNo
  readonly peerKey: PeerKey
  readonly name: string | null
  readonly role: 'member' | 'admin'
  readonly isPool: boolean
  readonly createdAtMs: Millis
  readonly revokedAtMs: Millis | null
  /** The user of a device. */
  readonly person: PeerKey | null
  readonly consentPolicy: 'open' | 'contacts'
  readonly allowed: number
  readonly blocked: number
  /** The shard that served it last, and since when. */
  readonly shard: ShardId | null
  readonly openedAtMs: Millis | null
}

export interface GroupView {
  readonly kind: 'group' | 'pool'
  readonly id: GroupId | PoolId
  readonly owner: PeerKey
  readonly ownerName: string | null
  readonly epoch: number
  /** For a pool. A group lists its members in the signed statement. */
  readonly members: number | null
  readonly overAtMs: Millis | null
}

export interface InviteView {
  readonly inviteId: InviteId
  /** Null for an operator's invite, and for one that was revoked before its first use. */
  readonly issuer: PeerKey | null
  readonly issuerName: string | null
  readonly uses: number
  readonly usesMax: number | null
  readonly notAfterMs: Millis | null
  readonly revokedAtMs: Millis | null
}

/** Counting stops here: a mesh may have millions of members. */
export const MEMBERS_COUNTED_MAX = 10_000

const ms = (instant: PgColumn): SQL => sql`floor(extract(epoch from ${instant}) * 1000)::float8`
const hex = (uuid: PgColumn): SQL => sql`replace(${uuid}::text, '-', '')`
const key = (bytes: PgColumn): SQL => sql`encode(${bytes}, 'hex')`
const people = alias(member, 'person_member')
const owners = alias(member, 'owner_member')

/** Lists meshes by id, after `after`. @throws DatabaseError */
export function listMeshes(
  db: Database,
  { after, limit }: { after: MeshId | null; limit: number },
): Promise<MeshEntry[]> {
  return execute<MeshEntry>(
    db,
    sql`${meshFields} where ${after ? sql`${mesh.meshId} > ${after}::uuid` : sql`true`}
      order by ${mesh.meshId} limit ${limit}::int`,
  )
}

/** Returns those of the meshes that exist. @throws DatabaseError */
export function findMeshes(db: Database, meshIds: readonly MeshId[]): Promise<MeshEntry[]> {
  return execute<MeshEntry>(db, sql`${meshFields} where ${mesh.meshId} = any (${arrayLiteral(meshIds)}::uuid[])`)
}

const meshFields = sql`
  select ${hex(mesh.meshId)} as "meshId", ${mesh.name} as name, ${ms(mesh.createdAt)} as "createdAtMs" from ${mesh}`

/** Counts up to `MEMBERS_COUNTED_MAX` members, without pools and revoked ones. @throws DatabaseError */
export async function countMembers(db: Database, meshId: MeshId): Promise<number> {
  const [row] = await execute<{ members: number }>(
    db,
    sql`
      select count(*)::int as members from (select from ${member} where ${member.meshId} = ${meshId}::uuid
        and ${member.revokedAt} is null and not ${member.isPool} limit ${MEMBERS_COUNTED_MAX}::int) as counted`,
  )
  return row!.members
}

/** Lists members by key, after `after`, including revoked ones and pools. @throws DatabaseError */
export function listPeers(
  db: Database,
  meshId: MeshId,
  { after, limit }: { after: PeerKey | null; limit: number },
): Promise<PeerEntry[]> {
  const behind = after ? sql`${member.peerKey} > ${byteaText(after)}::bytea` : sql`true`
  return execute<PeerEntry>(
    db,
    sql`${peerFields} where ${member.meshId} = ${meshId}::uuid and ${behind}
      order by ${member.peerKey} limit ${limit}::int`,
  )
}

/** @throws DatabaseError */
export function findPeers(db: Database, meshId: MeshId, peers: readonly PeerNo[]): Promise<PeerEntry[]> {
  return execute<PeerEntry>(
    db,
    sql`${peerFields} where ${member.meshId} = ${meshId}::uuid
      and ${member.peerNo} = any (${arrayLiteral(peers)}::int[])`,
  )
}

const consents = (isBlocked: boolean): SQL => sql`(select count(*)::int from ${consent}
  where ${consent.meshId} = ${member.meshId} and ${consent.owner} = ${member.peerNo} and ${consent.isBlocked} = ${isBlocked}::boolean)`

const peerFields = sql`
  select ${member.peerNo} as peer, ${key(member.peerKey)} as "peerKey", ${member.name} as name, ${member.role} as role,
    ${member.isPool} as "isPool", ${ms(member.createdAt)} as "createdAtMs", ${ms(member.revokedAt)} as "revokedAtMs",
    ${key(people.peerKey)} as person, ${member.consentPolicy} as "consentPolicy", ${consents(false)} as allowed,
    ${consents(true)} as blocked, ${hex(session.shard)} as shard, ${ms(session.openedAt)} as "openedAtMs"
  from ${member}
  left join ${session} on ${session.meshId} = ${member.meshId} and ${session.peerNo} = ${member.peerNo}
  left join ${member} as ${people} on ${people.meshId} = ${member.meshId} and ${people.peerNo} = ${member.person}`

/** Lists groups, including ended ones, and pools. @throws DatabaseError */
export function listGroupViews(db: Database, meshId: MeshId, limit: number): Promise<GroupView[]> {
  const ownerOf = (owned: PgColumn, ofMesh: PgColumn) =>
    sql`join ${member} as ${owners} on ${owners.meshId} = ${ofMesh} and ${owners.peerNo} = ${owned}`
  const owner = sql`${key(owners.peerKey)} as owner, ${owners.name} as "ownerName"`
  return execute<GroupView>(
    db,
    sql`
      (select 'group' as kind, ${hex(peerGroup.groupId)} as id, ${owner}, ${peerGroup.epoch} as epoch,
        null::int as members, case when ${peerGroup.epoch} = ${GROUP_EPOCH_LAST}::int then ${ms(peerGroup.overAt)} end as "overAtMs"
      from ${peerGroup} ${ownerOf(peerGroup.owner, peerGroup.meshId)}
      where ${peerGroup.meshId} = ${meshId}::uuid order by ${peerGroup.groupId} limit ${limit}::int)
      union all
      (select 'pool', ${key(member.peerKey)}, ${owner}, ${pool.epoch}, cardinality(${pool.members}), ${ms(member.revokedAt)}
      from ${pool} ${ownerOf(pool.owner, pool.meshId)}
      join ${member} on ${member.meshId} = ${pool.meshId} and ${member.peerNo} = ${pool.peerNo}
      where ${pool.meshId} = ${meshId}::uuid order by ${pool.peerNo} limit ${limit}::int)`,
  )
}

/**
 * Lists invites of the operator, and those of members that were used or revoked; others are unknown to the database.
 * @throws DatabaseError
 */
export function listInvites(db: Database, meshId: MeshId, limit: number): Promise<InviteView[]> {
  return execute<InviteView>(
    db,
    sql`
      select ${hex(invite.inviteId)} as "inviteId", ${key(owners.peerKey)} as issuer, ${owners.name} as "issuerName",
        ${invite.uses} as uses, ${invite.usesMax} as "usesMax", ${ms(invite.notAfter)} as "notAfterMs",
        ${ms(invite.revokedAt)} as "revokedAtMs"
      from ${invite}
      left join ${member} as ${owners} on ${owners.meshId} = ${invite.meshId} and ${owners.peerNo} = ${invite.issuer}
      where ${invite.meshId} = ${meshId}::uuid order by ${invite.inviteId} desc limit ${limit}::int`,
  )
}
