/**
 * The audit of operators' changes. Each entry is written in the statement of its change, so that neither exists without
 * the other.
 */
import type { Database } from '@sealpost/pg'
import { adminAudit, columnNames, execute } from '@sealpost/schema'
import type { MeshId, Millis } from '@sealpost/std'
import { type SQL, sql } from 'drizzle-orm'

/** The name of an admin token, or null for a change made directly in the database. */
export type Operator = string | null

export type AuditAction =
  | 'mesh.create'
  | 'mesh.enrol'
  | 'mesh.freeze'
  | 'mesh.leave'
  | 'mesh.arrive'
  | 'mesh.stay'
  | 'mesh.pin'
  | 'mesh.unpin'
  | 'peer.revoke'
  | 'invite.create'
  | 'invite.revoke'
  | 'dead_letters.redrive'
  | 'dead_letters.purge'
  | 'database.restored'
  | 'token.create'
  | 'token.revoke'

export interface AuditEntry {
  readonly id: number
  readonly atMs: Millis
  /** `token:NAME` or `database:ACCOUNT` */
  readonly actor: string
  readonly action: string
  readonly meshId: MeshId | null
  readonly subject: string | null
  /** Number of changed objects. */
  readonly count: number
}

/** The columns of an insert; `auditValues` has the first two values. */
export const auditColumns: SQL = columnNames(
  ...[adminAudit.actor, adminAudit.action, adminAudit.meshId, adminAudit.subject, adminAudit.count],
)

/** Actor and action; append the mesh, the subject and the count. */
export const auditValues = (operator: Operator, action: AuditAction): SQL =>
  sql`coalesce('token:' || ${operator}::text, 'database:' || session_user), ${action}::text`

/** Lists the newest first, before the entry `before`. @throws DatabaseError */
export function listAudit(
  db: Database,
  { meshId, before, limit }: { meshId?: MeshId | undefined; before?: number | undefined; limit: number },
): Promise<AuditEntry[]> {
  const ofMesh = meshId ? sql`${adminAudit.meshId} = ${meshId}::uuid` : sql`true`
  return execute<AuditEntry>(
    db,
    sql`
      select ${adminAudit.auditId} as id, floor(extract(epoch from ${adminAudit.at}) * 1000)::float8 as "atMs",
        ${adminAudit.actor} as actor, ${adminAudit.action} as action,
        replace(${adminAudit.meshId}::text, '-', '') as "meshId", ${adminAudit.subject} as subject, ${adminAudit.count} as count
      from ${adminAudit}
      where ${ofMesh} and ${adminAudit.auditId} < ${before ?? Number.MAX_SAFE_INTEGER}::bigint
      order by ${adminAudit.auditId} desc limit ${limit}::int`,
  )
}
