/** What an operator sees of meshes: who belongs to them, their groups, pools and invites. Nothing here is a message. */
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
import { arrayLiteral, byteaText } from './column-types.ts'
import type { Database } from './connect.ts'
import { execute } from './drizzle-run.ts'
import { consent, invite, member, mesh, peerGroup, pool, session } from './schema.ts'

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
  /** The person whose device it is. */
  readonly person: PeerKey | null
  readonly consentPolicy: 'open' | 'contacts'
  readonly allowed: number
  readonly blocked: number
  /** That served it last, and since when. */
  readonly shard: ShardId | null
  readonly openedAtMs: Millis | null
}

export interface GroupView {
  readonly kind: 'group' | 'pool'
  readonly id: GroupId | PoolId
  readonly owner: PeerKey
  readonly ownerName: string | null
  readonly epoch: number
  /** Of a pool. A group's are in its owner's signed statement. */
  readonly members: number | null
  readonly overAtMs: Millis | null
}

export interface InviteView {
  readonly inviteId: InviteId
  /** Null of the operator's invites, and of one that was revoked before anybody used it. */
  readonly issuer: PeerKey | null
  readonly issuerName: string | null
  readonly uses: number
  readonly usesMax: number | null
  readonly notAfterMs: Millis | null
  readonly revokedAtMs: Millis | null
}

/** Members are counted up to here: a mesh may have millions. */
export const MEMBERS_COUNTED_MAX = 10_000

const ms = (instant: PgColumn): SQL => sql`floor(extract(epoch from ${instant}) * 1000)::float8`
const hex = (uuid: PgColumn): SQL => sql`replace(${uuid}::text, '-', '')`
const key = (bytes: PgColumn): SQL => sql`encode(${bytes}, 'hex')`
const people = alias(member, 'person_member')
const owners = alias(member, 'owner_member')

/** By their ids, those behind `after`. @throws DatabaseError */
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

/** Those of the named that there are. @throws DatabaseError */
export function findMeshes(db: Database, meshIds: readonly MeshId[]): Promise<MeshEntry[]> {
  return execute<MeshEntry>(db, sql`${meshFields} where ${mesh.meshId} = any (${arrayLiteral(meshIds)}::uuid[])`)
}

const meshFields = sql`
  select ${hex(mesh.meshId)} as "meshId", ${mesh.name} as name, ${ms(mesh.createdAt)} as "createdAtMs" from ${mesh}`

/** Up to `MEMBERS_COUNTED_MAX`, without pools and those revoked. @throws DatabaseError */
export async function countMembers(db: Database, meshId: MeshId): Promise<number> {
  const [row] = await execute<{ members: number }>(
    db,
    sql`
      select count(*)::int as members from (select from ${member} where ${member.meshId} = ${meshId}::uuid
        and ${member.revokedAt} is null and not ${member.isPool} limit ${MEMBERS_COUNTED_MAX}::int) as counted`,
  )
  return row!.members
}

/** By their keys, those behind `after`; revoked ones and pools are among them. @throws DatabaseError */
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

/** Groups, also those that are over, and pools. @throws DatabaseError */
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

/** Those that were used or revoked, and the operator's: a member's is known to nobody here until then. @throws DatabaseError */
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
