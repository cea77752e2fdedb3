/**
 * Reads meshes for operators, without messages, and makes operators' changes. Each change and its audit entry are one
 * idempotent statement.
 */
import { arrayLiteral, byteaText, type Database } from '@sealpost/pg'
import {
  adminAudit,
  columnNames,
  consent,
  execute,
  formerIdentity,
  invite,
  member,
  memberProof,
  mesh,
  meshRoot,
  peerGroup,
  pool,
  senderMark,
  session,
} from '@sealpost/schema'
import {
  asciiName,
  assert,
  GROUP_EPOCH_LAST,
  type GroupId,
  type InviteId,
  isChosenName,
  type MeshId,
  type Millis,
  NAME_RULE,
  OperatingError,
  type PeerKey,
  type PeerNo,
  type PoolId,
  type ShardId,
} from '@sealpost/std'
import { type SQL, sql } from 'drizzle-orm'
import { alias, type PgColumn } from 'drizzle-orm/pg-core'
import type { MemberBinding } from '../members/key-bindings.ts'
import { dependentsSql, nameKeysOf, type RevokedPeer, withUnicodeNames } from '../members/membership.ts'
import { auditColumns, auditValues, type Operator } from '../operators/operators.ts'

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
  /** The shard that served the member last. */
  readonly shard: ShardId | null
  readonly openedAtMs: Millis | null
  /** Whether the database has signed statements that name the member. Null if the mesh has no root. */
  readonly isCertified: boolean | null
}

export interface GroupView {
  readonly kind: 'group' | 'pool'
  readonly id: GroupId | PoolId
  readonly owner: PeerKey
  readonly ownerName: string | null
  readonly epoch: number
  /** The number of a pool's members; null for a group, whose statement lists them. */
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

/** The number of members at which counting stops, because a mesh may have millions. */
export const MEMBERS_COUNTED_MAX = 10_000

const ms = (instant: PgColumn): SQL => sql`floor(extract(epoch from ${instant}) * 1000)::float8`
const hex = (uuid: PgColumn): SQL => sql`replace(${uuid}::text, '-', '')`
const key = (bytes: PgColumn): SQL => sql`encode(${bytes}, 'hex')`
const people = alias(member, 'person_member')
const owners = alias(member, 'owner_member')

/** Lists meshes by id, starting after `after`. */
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

export function findMeshes(db: Database, meshIds: readonly MeshId[]): Promise<MeshEntry[]> {
  return execute<MeshEntry>(db, sql`${meshFields} where ${mesh.meshId} = any (${arrayLiteral(meshIds)}::uuid[])`)
}

const meshFields = sql`
  select ${hex(mesh.meshId)} as "meshId", ${mesh.name} as name, ${ms(mesh.createdAt)} as "createdAtMs" from ${mesh}`

/** Counts up to `MEMBERS_COUNTED_MAX` members, without pools and revoked members. */
export async function countMembers(db: Database, meshId: MeshId): Promise<number> {
  const [row] = await execute<{ members: number }>(
    db,
    sql`
      select count(*)::int as members from (select from ${member} where ${member.meshId} = ${meshId}::uuid
        and ${member.revokedAt} is null and not ${member.isPool} limit ${MEMBERS_COUNTED_MAX}::int) as counted`,
  )
  return row!.members
}

/** Lists members by key after `after`, including revoked members and pools. */
export async function listPeers(
  db: Database,
  meshId: MeshId,
  { after, limit }: { after: PeerKey | null; limit: number },
): Promise<PeerEntry[]> {
  const behind = after ? sql`${member.peerKey} > ${byteaText(after)}::bytea` : sql`true`
  return withUnicodeNames(
    await execute<PeerEntry>(
      db,
      sql`${peerFields} where ${member.meshId} = ${meshId}::uuid and ${behind}
      order by ${member.peerKey} limit ${limit}::int`,
    ),
  )
}

export async function findPeers(db: Database, meshId: MeshId, peers: readonly PeerNo[]): Promise<PeerEntry[]> {
  return withUnicodeNames(
    await execute<PeerEntry>(
      db,
      sql`${peerFields} where ${member.meshId} = ${meshId}::uuid
      and ${member.peerNo} = any (${arrayLiteral(peers)}::int[])`,
    ),
  )
}

const consents = (isBlocked: boolean): SQL => sql`(select count(*)::int from ${consent}
  where ${consent.meshId} = ${member.meshId} and ${consent.owner} = ${member.peerNo} and ${consent.isBlocked} = ${isBlocked}::boolean)`

const peerFields = sql`
  select ${member.peerNo} as peer, ${key(member.peerKey)} as "peerKey", ${member.name} as name, ${member.role} as role,
    ${member.isPool} as "isPool", ${ms(member.createdAt)} as "createdAtMs", ${ms(member.revokedAt)} as "revokedAtMs",
    ${key(people.peerKey)} as person, ${member.consentPolicy} as "consentPolicy", ${consents(false)} as allowed,
    ${consents(true)} as blocked, ${hex(session.shard)} as shard, ${ms(session.openedAt)} as "openedAtMs",
    case when exists (select from ${meshRoot} where ${meshRoot.meshId} = ${member.meshId}) then ${member.person} is not null
      or exists (select from ${memberProof} where ${memberProof.meshId} = ${member.meshId}
        and (${memberProof.peerKey} = ${member.peerKey} or ${memberProof.peerKey} in (select ${formerIdentity.peerKey}
          from ${formerIdentity} where ${formerIdentity.meshId} = ${member.meshId} and ${formerIdentity.peerNo} = ${member.peerNo})))
    end as "isCertified"
  from ${member}
  left join ${session} on ${session.meshId} = ${member.meshId} and ${session.peerNo} = ${member.peerNo}
  left join ${member} as ${people} on ${people.meshId} = ${member.meshId} and ${people.peerNo} = ${member.person}`

/** Lists pools and groups, including ended groups. */
export async function listGroupViews(db: Database, meshId: MeshId, limit: number): Promise<GroupView[]> {
  const ownerOf = (owned: PgColumn, ofMesh: PgColumn) =>
    sql`join ${member} as ${owners} on ${owners.meshId} = ${ofMesh} and ${owners.peerNo} = ${owned}`
  const owner = sql`${key(owners.peerKey)} as owner, ${owners.name} as "ownerName"`
  return withUnicodeNames(
    await execute<GroupView>(
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
    ),
  )
}

/**
 * Lists the operator's invites, and members' invites that were used or revoked. Unused invites from members aren't
 * stored in the database.
 */
export async function listInvites(db: Database, meshId: MeshId, limit: number): Promise<InviteView[]> {
  return withUnicodeNames(
    await execute<InviteView>(
      db,
      sql`
      select ${hex(invite.inviteId)} as "inviteId", ${key(owners.peerKey)} as issuer, ${owners.name} as "issuerName",
        ${invite.uses} as uses, ${invite.usesMax} as "usesMax", ${ms(invite.notAfter)} as "notAfterMs",
        ${ms(invite.revokedAt)} as "revokedAtMs"
      from ${invite}
      left join ${member} as ${owners} on ${owners.meshId} = ${invite.meshId} and ${owners.peerNo} = ${invite.issuer}
      where ${invite.meshId} = ${meshId}::uuid order by ${invite.inviteId} desc limit ${limit}::int`,
    ),
  )
}

/** @throws DatabaseError `db_refused` (23505) if the mesh exists; OperatingError `name_malformed` */
export async function createMesh(db: Database, { meshId, name }: { meshId: MeshId; name: string }): Promise<void> {
  checkName(name)
  await execute(
    db,
    sql`
      with created as (
        insert into ${mesh} (${columnNames(mesh.meshId, mesh.name)}) values (${meshId}::uuid, ${name}) returning 1
      )
      insert into ${adminAudit} (${auditColumns})
      select ${auditValues(null, 'mesh.create')}, ${meshId}::uuid, ${name}::text, 1 from created`,
  )
}

export interface OperatorInvite {
  readonly inviteId: InviteId
  readonly hash: Uint8Array
  readonly usesMax: number
  readonly notAfterMs: Millis
}

const inviteColumns = columnNames(invite.meshId, invite.inviteId, invite.hash, invite.usesMax, invite.notAfter)
const inviteValues = (meshId: MeshId, { inviteId, hash, usesMax, notAfterMs }: OperatorInvite) =>
  sql`${meshId}::uuid, ${inviteId}::uuid, ${byteaText(hash)}::bytea, ${usesMax}::int, to_timestamp(${notAfterMs}::float8 / 1000)`

/** Creates a mesh and its first admin's invite. @returns false if a mesh with this name exists */
export async function createMeshWithInvite(
  db: Database,
  { meshId, name, invite: first }: { meshId: MeshId; name: string; invite: OperatorInvite },
): Promise<boolean> {
  const rows = await execute(
    db,
    sql`
      with created as (
        insert into ${mesh} (${columnNames(mesh.meshId, mesh.name)})
        select ${meshId}::uuid, ${name}::text where not exists (select from ${mesh} where ${mesh.name} = ${name}::text)
        returning 1
      ), invited as (
        insert into ${invite} (${inviteColumns}) select ${inviteValues(meshId, first)} from created
      )
      insert into ${adminAudit} (${auditColumns})
      select ${auditValues(null, 'mesh.create')}, ${meshId}::uuid, ${name}::text, 1 from created returning 1`,
  )
  return rows.length > 0
}

/** Stores another invite from the operator. @returns false if the mesh does not exist */
export async function addOperatorInvite(db: Database, meshId: MeshId, added: OperatorInvite): Promise<boolean> {
  const rows = await execute(
    db,
    sql`
      with invited as (
        insert into ${invite} (${inviteColumns})
        select ${inviteValues(meshId, added)} from ${mesh} where ${mesh.meshId} = ${meshId}::uuid returning 1
      )
      insert into ${adminAudit} (${auditColumns})
      select ${auditValues(null, 'invite.create')}, ${meshId}::uuid, ${added.inviteId}::text, 1 from invited returning 1`,
  )
  return rows.length > 0
}

function checkName(name: string): void {
  if (!isChosenName(name)) throw new OperatingError('name_malformed', `A name must be ${NAME_RULE}.`)
}

/**
 * Enrols members, with one audit entry.
 * @returns the members' numbers in the order of `bindings`
 * @throws DatabaseError `db_refused`: 23505 if a key is already a member or a name is taken, 23503 if the mesh does not
 * exist, 23514 if a length is invalid; OperatingError `name_malformed`
 */
export async function addMembers(db: Database, meshId: MeshId, bindings: readonly MemberBinding[]): Promise<PeerNo[]> {
  for (const { name } of bindings) if (name !== undefined) checkName(name)
  const names = bindings.map(({ name }) => (name === undefined ? null : asciiName(name)))
  const keys = names.map((name) => (name === null ? null : nameKeysOf(name)))
  const bytes = (pick: (binding: MemberBinding) => string | Uint8Array) =>
    arrayLiteral(bindings.map((b) => byteaText(pick(b))))
  const numbers = (pick: (binding: MemberBinding) => number) => arrayLiteral(bindings.map(pick))
  const columns = columnNames(
    member.meshId,
    member.peerKey,
    member.boxKey,
    member.boxEpoch,
    member.bindingNotAfterMs,
    member.bindingSignature,
    member.name,
    member.skeleton,
    member.folded,
    member.role,
  )
  const rows = await execute<{ peerNo: PeerNo }>(
    db,
    sql`
      with given as (
        select * from unnest(
          ${bytes((b) => b.peerKey)}::bytea[], ${bytes((b) => b.boxKey)}::bytea[], ${numbers((b) => b.boxEpoch)}::int4[],
          ${numbers((b) => b.notAfterMs)}::int8[], ${bytes((b) => b.signature)}::bytea[],
          ${arrayLiteral(names)}::text[], ${arrayLiteral(keys.map((k) => k?.skeleton ?? null))}::text[],
          ${arrayLiteral(keys.map((k) => k?.folded ?? null))}::text[],
          ${arrayLiteral(bindings.map((b) => b.role ?? 'member'))}::text[]
        ) with ordinality as g (peer_key, box_key, box_epoch, not_after_ms, signature, name, skeleton, folded, role, place)
      ), added as (
        insert into ${member} (${columns})
        select ${meshId}::uuid, peer_key, box_key, box_epoch, not_after_ms, signature, name, skeleton, folded, role from given order by place
        returning ${columnNames(member.peerNo)} as peer_no, ${columnNames(member.peerKey)} as peer_key
      ), opened as (
        insert into ${session} (${columnNames(session.meshId, session.peerNo)}) select ${meshId}::uuid, peer_no from added
      ), marked as (
        insert into ${senderMark} (${columnNames(senderMark.meshId, senderMark.sender)}) select ${meshId}::uuid, peer_no from added
      ), audited as (
        insert into ${adminAudit} (${auditColumns})
        select ${auditValues(null, 'mesh.enrol')}, ${meshId}::uuid, case when count(*) = 1 then min(encode(peer_key, 'hex')) end,
          count(*) from added having count(*) > 0
      )
      select added.peer_no as "peerNo" from added join given using (peer_key) order by given.place`,
  )
  assert(rows.length === bindings.length, 'every binding became one member')
  return rows.map((row) => row.peerNo)
}

/**
 * Revokes a member, and its devices or those that it vouched for. Keeps the rows, so that the keys can't be enrolled
 * again.
 * @returns the peers whose connections must end; empty if the member does not exist
 */
export function revokePeer(
  db: Database,
  operator: Operator,
  { meshId, peerKey }: { meshId: MeshId; peerKey: PeerKey },
): Promise<RevokedPeer[]> {
  return execute<RevokedPeer>(
    db,
    sql`
      with named as (
        select m.peer_no, m.peer_key, m.person, m.revoked_at is null as is_new from ${member} m
        where m.mesh_id = ${meshId}::uuid and m.peer_key = ${byteaText(peerKey)}::bytea and not m.is_pool
      ), ended as (
        update ${member} set ${columnNames(member.revokedAt)} = coalesce(${member.revokedAt}, clock_timestamp())
        where ${member.meshId} = ${meshId}::uuid and (
          ${member.peerNo} in (select peer_no from named)
          or ${member.peerNo} in (${dependentsSql(sql`${meshId}::uuid`)}))
        returning ${member.peerNo} as peer_no, ${member.peerKey} as peer_key
      ), audited as (
        insert into ${adminAudit} (${auditColumns})
        select ${auditValues(operator, 'peer.revoke')}, ${meshId}::uuid, ${peerKey}::text, (select count(*) from ended)
        from named where is_new
      )
      select peer_no as peer, encode(peer_key, 'hex') as "peerKey" from ended`,
  )
}

/** Revokes an invite. Members that have used it remain. @returns whether the mesh exists */
export async function revokeInvite(
  db: Database,
  operator: Operator,
  { meshId, inviteId }: { meshId: MeshId; inviteId: InviteId },
): Promise<boolean> {
  const rows = await execute(
    db,
    sql`
      with revoked_invites as (
        insert into ${invite} (${columnNames(invite.meshId, invite.inviteId, invite.revokedAt)})
        select ${mesh.meshId}, ${inviteId}::uuid, clock_timestamp() from ${mesh} where ${mesh.meshId} = ${meshId}::uuid
        on conflict (${columnNames(invite.meshId, invite.inviteId)})
        do update set ${columnNames(invite.revokedAt)} = excluded.${columnNames(invite.revokedAt)} where ${invite.revokedAt} is null
        returning 1
      ), audited as (
        insert into ${adminAudit} (${auditColumns})
        select ${auditValues(operator, 'invite.revoke')}, ${meshId}::uuid, ${inviteId}::text, 1 from revoked_invites
      )
      select 1 from ${mesh} where ${mesh.meshId} = ${meshId}::uuid`,
  )
  return rows.length > 0
}
