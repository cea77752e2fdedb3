/** Creates meshes, and invites that the operator signs. */
import { byteaText, type Database } from '@sealpost/pg'
import { adminAudit, columnNames, execute, invite, mesh } from '@sealpost/schema'
import { type InviteId, isChosenName, type MeshId, type Millis, NAME_RULE, OperatingError } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import { auditColumns, auditValues } from '../operators/audit.ts'

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

export function checkName(name: string): void {
  if (!isChosenName(name)) throw new OperatingError('name_malformed', `A name is ${NAME_RULE}.`)
}
