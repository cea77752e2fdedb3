/**
 * What an operator does with the database at hand: meshes and their first members. How members let others in and out is
 * in `membership.ts`.
 */
import {
  assert,
  isChosenName,
  type MeshId,
  type Millis,
  NAME_RULE,
  OperatingError,
  type PeerKey,
  type PeerNo,
} from '@sealpost/std'
import { sql } from 'drizzle-orm'
import { auditColumns, auditOf } from './audit.ts'
import { arrayLiteral, byteaText } from './column-types.ts'
import type { Database } from './connect.ts'
import { execute, names } from './drizzle-run.ts'
import { device, member, mesh, senderMark, session } from './schema.ts'
import { adminAudit } from './schema-admin.ts'

/** A member as enrolled: its ed25519 key and the box key it signed for. Keys and signature as bytes or hex. */
export interface MemberBinding {
  peerKey: PeerKey | Uint8Array
  boxKey: string | Uint8Array
  boxEpoch: number
  notAfterMs: Millis
  signature: string | Uint8Array
  /** As `isChosenName` has it; no two of a mesh are alike, in capitals or not. Default: none. */
  name?: string
  /** Default `member`. An admin makes invites and revokes; the first one of a mesh is enrolled here. */
  role?: 'member' | 'admin'
}

/** @throws DatabaseError `db_refused` (23505) when the mesh exists; OperatingError `name_malformed` */
export async function createMesh(db: Database, { meshId, name }: { meshId: MeshId; name: string }): Promise<void> {
  checkName(name)
  await execute(
    db,
    sql`
      with created as (
        insert into ${mesh} (${names(mesh.meshId, mesh.name)}) values (${meshId}::uuid, ${name}) returning 1
      )
      insert into ${adminAudit} (${auditColumns})
      select ${auditOf(null, 'mesh.create')}, ${meshId}::uuid, ${name}::text, 1 from created`,
  )
}

/**
 * Enrols members, each with its session and its sender mark, in one statement: all or none. It is an operator's change: one
 * line of the audit.
 * @returns the members' numbers in the order of `bindings`
 * @throws DatabaseError `db_refused`: 23505 a key is a member already or a name is taken, 23503 no such mesh, 23514 a wrong length;
 *   OperatingError `name_malformed`
 */
export async function addMembers(db: Database, meshId: MeshId, bindings: readonly MemberBinding[]): Promise<PeerNo[]> {
  for (const { name } of bindings) if (name !== undefined) checkName(name)
  const bytes = (pick: (binding: MemberBinding) => string | Uint8Array) =>
    arrayLiteral(bindings.map((b) => byteaText(pick(b))))
  const numbers = (pick: (binding: MemberBinding) => number) => arrayLiteral(bindings.map(pick))
  const columns = names(
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
        returning ${names(member.peerNo)} as peer_no, ${names(member.peerKey)} as peer_key
      ), opened as (
        insert into ${session} (${names(session.meshId, session.peerNo)}) select ${meshId}::uuid, peer_no from added
      ), marked as (
        insert into ${senderMark} (${names(senderMark.meshId, senderMark.sender)}) select ${meshId}::uuid, peer_no from added
      ), audited as (
        insert into ${adminAudit} (${auditColumns})
        select ${auditOf(null, 'mesh.enrol')}, ${meshId}::uuid, case when count(*) = 1 then min(encode(peer_key, 'hex')) end,
          count(*) from added having count(*) > 0
      )
      select added.peer_no as "peerNo" from added join given using (peer_key) order by given.place`,
  )
  assert(rows.length === bindings.length, 'every binding became one member')
  return rows.map((row) => row.peerNo)
}

function checkName(name: string): void {
  if (!isChosenName(name)) throw new OperatingError('name_malformed', `A name is ${NAME_RULE}.`)
}

/**
 * Ends a membership, and those of a person's devices; the rows stay, so that the keys can't be enrolled again.
 * @returns undefined for no such member
 */
export async function revokeMember(db: Database, meshId: MeshId, peerKey: PeerKey): Promise<PeerNo | undefined> {
  const [row] = await execute<{ peerNo: PeerNo }>(
    db,
    sql`
      with named as (
        select m.peer_no from ${member} m
        where m.mesh_id = ${meshId}::uuid and m.peer_key = ${byteaText(peerKey)}::bytea
      ), ended as (
        update ${member} set ${names(member.revokedAt)} = coalesce(${member.revokedAt}, clock_timestamp())
        where ${member.meshId} = ${meshId}::uuid and (
          ${member.peerNo} in (select peer_no from named) or ${member.peerNo} in (
            select d.peer_no from ${device} d join named on named.peer_no = d.person where d.mesh_id = ${meshId}::uuid))
      )
      select peer_no as "peerNo" from named`,
  )
  return row?.peerNo
}
