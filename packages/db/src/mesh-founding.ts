/**
 * How a mesh gets its first admin: by an invite that the operator signs with a key that is thrown away. No admin vouches for
 * it, so its row is written beforehand, with its hash and without an issuer, and that row does (`membership.ts`).
 */
import type { InviteId, MeshId, Millis } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import { auditColumns, auditOf } from './audit.ts'
import { byteaText } from './column-types.ts'
import type { Database } from './connect.ts'
import { execute, names } from './drizzle-run.ts'
import { invite, mesh } from './schema.ts'
import { adminAudit } from './schema-admin.ts'

export interface OperatorInvite {
  readonly inviteId: InviteId
  /** BLAKE2b-256 of the whole invite. */
  readonly hash: Uint8Array
  readonly usesMax: number
  readonly notAfterMs: Millis
}

const inviteColumns = names(invite.meshId, invite.inviteId, invite.hash, invite.usesMax, invite.notAfter)
const inviteValues = (meshId: MeshId, { inviteId, hash, usesMax, notAfterMs }: OperatorInvite) =>
  sql`${meshId}::uuid, ${inviteId}::uuid, ${byteaText(hash)}::bytea, ${usesMax}::int, to_timestamp(${notAfterMs}::float8 / 1000)`

/** Creates a mesh and the invite of its first admin. @returns false when a mesh has this name already. @throws DatabaseError */
export async function foundMesh(
  db: Database,
  { meshId, name, invite: first }: { meshId: MeshId; name: string; invite: OperatorInvite },
): Promise<boolean> {
  const rows = await execute(
    db,
    sql`
      with created as (
        insert into ${mesh} (${names(mesh.meshId, mesh.name)})
        select ${meshId}::uuid, ${name}::text where not exists (select from ${mesh} where ${mesh.name} = ${name}::text)
        returning 1
      ), invited as (
        insert into ${invite} (${inviteColumns}) select ${inviteValues(meshId, first)} from created
      )
      insert into ${adminAudit} (${auditColumns})
      select ${auditOf(null, 'mesh.create')}, ${meshId}::uuid, ${name}::text, 1 from created returning 1`,
  )
  return rows.length > 0
}

/** Records one more invite of the operator's. @returns false when there is no such mesh. @throws DatabaseError */
export async function addOperatorInvite(db: Database, meshId: MeshId, added: OperatorInvite): Promise<boolean> {
  const rows = await execute(
    db,
    sql`
      with invited as (
        insert into ${invite} (${inviteColumns})
        select ${inviteValues(meshId, added)} from ${mesh} where ${mesh.meshId} = ${meshId}::uuid returning 1
      )
      insert into ${adminAudit} (${auditColumns})
      select ${auditOf(null, 'invite.create')}, ${meshId}::uuid, ${added.inviteId}::text, 1 from invited returning 1`,
  )
  return rows.length > 0
}
