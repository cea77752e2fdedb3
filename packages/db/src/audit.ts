/** What operators changed, each in the same statement as the change itself: neither is there without the other. */
import type { MeshId, Millis } from '@sealpost/std'
import { type SQL, sql } from 'drizzle-orm'
import type { Database } from './connect.ts'
import { execute, names } from './drizzle-run.ts'
import { adminAudit } from './schema-admin.ts'

/** Who changes something: the name of an admin token, or null for whoever works on the database itself. */
export type Operator = string | null

export type AuditedAction =
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
  /** Of what it was done to. */
  readonly count: number
}

/** The columns an entry is inserted with, in the order of `auditOf`. */
export const auditColumns: SQL = names(
  ...[adminAudit.actor, adminAudit.action, adminAudit.meshId, adminAudit.subject, adminAudit.count],
)

/** Who, and what; the mesh, the subject and the count follow. */
export const auditOf = (operator: Operator, action: AuditedAction): SQL =>
  sql`coalesce('token:' || ${operator}::text, 'database:' || session_user), ${action}::text`

/** The latest first, those before the entry `before`. @throws DatabaseError */
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
