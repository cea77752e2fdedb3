/** What an operator changes in a mesh, each with its audit in one statement. Saying one again changes nothing. */
import type { InviteId, MeshId, PeerKey } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import { auditColumns, auditOf, type Operator } from './audit.ts'
import { byteaText } from './column-types.ts'
import type { Database } from './connect.ts'
import { execute, names } from './drizzle-run.ts'
import type { RevokedMember } from './membership.ts'
import { device, invite, member, mesh } from './schema.ts'
import { adminAudit } from './schema-admin.ts'

/**
 * Ends a membership, and those of a person's devices; the rows stay, so that the keys can't be enrolled again. A pool is
 * no member. @returns whose sessions are to end; empty: there is no such peer. @throws DatabaseError
 */
export function revokePeer(
  db: Database,
  operator: Operator,
  { meshId, peerKey }: { meshId: MeshId; peerKey: PeerKey },
): Promise<RevokedMember[]> {
  return execute<RevokedMember>(
    db,
    sql`
      with named as (
        select m.peer_no, m.revoked_at is null as is_new from ${member} m
        where m.mesh_id = ${meshId}::uuid and m.peer_key = ${byteaText(peerKey)}::bytea and not m.is_pool
      ), ended as (
        update ${member} set ${names(member.revokedAt)} = coalesce(${member.revokedAt}, clock_timestamp())
        where ${member.meshId} = ${meshId}::uuid and (
          ${member.peerNo} in (select peer_no from named) or ${member.peerNo} in (
            select d.peer_no from ${device} d join named on named.peer_no = d.person where d.mesh_id = ${meshId}::uuid))
        returning ${member.peerNo} as peer_no, ${member.peerKey} as peer_key
      ), audited as (
        insert into ${adminAudit} (${auditColumns})
        select ${auditOf(operator, 'peer.revoke')}, ${meshId}::uuid, ${peerKey}::text, (select count(*) from ended)
        from named where is_new
      )
      select peer_no as peer, encode(peer_key, 'hex') as "peerKey" from ended`,
  )
}

/**
 * Nobody is let in by it any more; those it let in stay. It need not have been used.
 * @returns whether there is such a mesh. @throws DatabaseError
 */
export async function revokeInvite(
  db: Database,
  operator: Operator,
  { meshId, inviteId }: { meshId: MeshId; inviteId: InviteId },
): Promise<boolean> {
  const rows = await execute(
    db,
    sql`
      with barred as (
        insert into ${invite} (${names(invite.meshId, invite.inviteId, invite.revokedAt)})
        select ${mesh.meshId}, ${inviteId}::uuid, clock_timestamp() from ${mesh} where ${mesh.meshId} = ${meshId}::uuid
        on conflict (${names(invite.meshId, invite.inviteId)})
        do update set ${names(invite.revokedAt)} = excluded.${names(invite.revokedAt)} where ${invite.revokedAt} is null
        returning 1
      ), audited as (
        insert into ${adminAudit} (${auditColumns})
        select ${auditOf(operator, 'invite.revoke')}, ${meshId}::uuid, ${inviteId}::text, 1 from barred
      )
      select 1 from ${mesh} where ${mesh.meshId} = ${meshId}::uuid`,
  )
  return rows.length > 0
}
