/**
 * What operators change in a mesh, each change and its audit entry in one statement. Repeating a change has no effect.
 */
import { arrayLiteral, byteaText, type Database } from '@sealpost/pg'
import { adminAudit, columnNames, device, execute, invite, member, mesh, senderMark, session } from '@sealpost/schema'
import {
  assert,
  type InviteId,
  isChosenName,
  type MeshId,
  type Millis,
  NAME_RULE,
  OperatingError,
  type PeerKey,
  type PeerNo,
} from '@sealpost/std'
import { sql } from 'drizzle-orm'
import type { MemberBinding } from '../members/key-bindings.ts'
import type { RevokedPeer } from '../members/membership.ts'
import { auditColumns, auditValues, type Operator } from '../operators/operators.ts'

/** Creates meshes, and invites that the operator signs. */

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

/** Creates a mesh and the invite for its first admin. @returns false if a mesh has this name @throws DatabaseError */
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

/** Stores another invite of the operator. @returns false if there is no such mesh @throws DatabaseError */
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
  if (!isChosenName(name)) throw new OperatingError('name_malformed', `A name is ${NAME_RULE}.`)
}

/**
 * Enrols members, each with its session and its sender mark, with one audit entry.
 * @returns the members' numbers in the order of `bindings`
 * @throws DatabaseError `db_refused`: 23505 a key is a member or a name is taken, 23503 no such mesh, 23514 a wrong
 *   length; OperatingError `name_malformed`
 */
export async function addMembers(db: Database, meshId: MeshId, bindings: readonly MemberBinding[]): Promise<PeerNo[]> {
  for (const { name } of bindings) if (name !== undefined) checkName(name)
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
    member.role,
  )
  const rows = await execute<{ peerNo: PeerNo }>(
    db,
    sql`
      with given as (
        select * from unnest(
          ${bytes((b) => b.peerKey)}::bytea[], ${bytes((b) => b.boxKey)}::bytea[], ${numbers((b) => b.boxEpoch)}::int4[],
          ${numbers((b) => b.notAfterMs)}::int8[], ${bytes((b) => b.signature)}::bytea[],
          ${arrayLiteral(bindings.map((b) => b.name ?? null))}::text[],
          ${arrayLiteral(bindings.map((b) => b.role ?? 'member'))}::text[]
        ) with ordinality as g (peer_key, box_key, box_epoch, not_after_ms, signature, name, role, place)
      ), added as (
        insert into ${member} (${columns})
        select ${meshId}::uuid, peer_key, box_key, box_epoch, not_after_ms, signature, name, role from given order by place
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
 * Revokes a member and, for a user, its devices. The rows stay, so that the keys can't be enrolled again. Ignores
 * pools.
 * @returns the peers whose connections must end; empty if there is no such member
 * @throws DatabaseError
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
        select m.peer_no, m.revoked_at is null as is_new from ${member} m
        where m.mesh_id = ${meshId}::uuid and m.peer_key = ${byteaText(peerKey)}::bytea and not m.is_pool
      ), ended as (
        update ${member} set ${columnNames(member.revokedAt)} = coalesce(${member.revokedAt}, clock_timestamp())
        where ${member.meshId} = ${meshId}::uuid and (
          ${member.peerNo} in (select peer_no from named) or ${member.peerNo} in (
            select d.peer_no from ${device} d join named on named.peer_no = d.person where d.mesh_id = ${meshId}::uuid))
        returning ${member.peerNo} as peer_no, ${member.peerKey} as peer_key
      ), audited as (
        insert into ${adminAudit} (${auditColumns})
        select ${auditValues(operator, 'peer.revoke')}, ${meshId}::uuid, ${peerKey}::text, (select count(*) from ended)
        from named where is_new
      )
      select peer_no as peer, encode(peer_key, 'hex') as "peerKey" from ended`,
  )
}

/** Revokes an invite, used or not; its members stay. @returns whether the mesh exists @throws DatabaseError */
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
