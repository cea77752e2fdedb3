/** Audits operators' changes. The statement that makes a change also writes its audit entry. */

import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { byteaText, type Database } from '@sealpost/pg'
import { adminAudit, adminToken, columnNames, execute } from '@sealpost/schema'
import type { MeshId, Millis } from '@sealpost/std'
import { type SQL, sql } from 'drizzle-orm'

/** The name of an admin token; null for a change made directly in the database. */
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

interface AuditEntry {
  readonly id: number
  readonly atMs: Millis
  /** `token:NAME` or `database:ACCOUNT` */
  readonly actor: string
  readonly action: string
  readonly meshId: MeshId | null
  readonly subject: string | null
  readonly count: number
}

/** The columns of an insert, of which `auditValues` returns the first two values. */
export const auditColumns: SQL = columnNames(
  ...[adminAudit.actor, adminAudit.action, adminAudit.meshId, adminAudit.subject, adminAudit.count],
)

/** Returns the values for actor and action, to be followed by mesh, subject and count. */
export const auditValues = (operator: Operator, action: AuditAction): SQL =>
  sql`coalesce('token:' || ${operator}::text, 'database:' || session_user), ${action}::text`

/** Lists audit entries older than `before`, newest first. */
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

/** `operate` includes `read`. */
export const ADMIN_SCOPES = ['read', 'operate'] as const
export type AdminScope = (typeof ADMIN_SCOPES)[number]

export interface NewAdminToken {
  /** The name that appears in the audit. */
  readonly name: string
  readonly scope: AdminScope
  /** Null for all meshes. */
  readonly meshId: MeshId | null
  readonly ttlSeconds: number
}

interface IssuedAdminToken {
  readonly id: string
  /** The token, which is returned only once. */
  readonly token: string
  readonly expiresAtMs: Millis
}

export interface AdminTokenHolder {
  readonly name: string
  readonly scope: AdminScope
  readonly meshId: MeshId | null
  readonly remainingMs: Millis
}

interface ListedAdminToken extends Omit<AdminTokenHolder, 'restMs'> {
  readonly id: string
  readonly createdAtMs: Millis
  readonly expiresAtMs: Millis
  readonly lastUsedAtMs: Millis | null
  readonly isRevoked: boolean
}

const ID_BYTES = 8
const SECRET_BYTES = 32
const TOKEN = /^spa_([0-9a-f]{16})_([A-Za-z0-9_-]{43})$/
/** The minimum time between two recorded uses of a token, because each recording is a commit. */
const NOTED_EVERY_SECONDS = 60

const sha256 = (secret: string): Buffer => createHash('sha256').update(secret).digest()
const ms = (instant: SQL | typeof adminToken.createdAt): SQL =>
  sql`floor(extract(epoch from ${instant}) * 1000)::float8`

export async function addAdminToken(
  db: Database,
  { name, scope, meshId, ttlSeconds }: NewAdminToken,
): Promise<IssuedAdminToken> {
  const id = randomBytes(ID_BYTES).toString('hex')
  const secret = randomBytes(SECRET_BYTES).toString('base64url')
  const t = adminToken
  const [row] = await execute<{ expiresAtMs: Millis }>(
    db,
    sql`
      with added as (
        insert into ${t} (${columnNames(t.tokenId, t.hash, t.name, t.scope, t.meshId, t.expiresAt)})
        values (${id}::text, ${byteaText(sha256(secret))}::bytea, ${name}::text, ${scope}::text, ${meshId}::uuid,
          clock_timestamp() + make_interval(secs => ${ttlSeconds}::float8))
        returning ${columnNames(t.expiresAt)}
      ), audited as (
        insert into ${adminAudit} (${auditColumns})
        select ${auditValues(null, 'token.create')}, ${meshId}::uuid, ${`${name} (${scope})`}::text, 1
      )
      select floor(extract(epoch from expires_at) * 1000)::float8 as "expiresAtMs" from added`,
  )
  return { id, token: `spa_${id}_${secret}`, expiresAtMs: row!.expiresAtMs }
}

/** Records the use. Returns undefined for a malformed, unknown, expired or revoked token. */
export async function findAdminToken(db: Database, token: string): Promise<AdminTokenHolder | undefined> {
  const [, id, secret] = TOKEN.exec(token) ?? []
  if (!id || !secret) return undefined
  const t = adminToken
  const [row] = await execute<AdminTokenHolder & { hash: Uint8Array; isNoted: boolean }>(
    db,
    sql`
      select ${t.hash} as hash, ${t.name} as name, ${t.scope} as scope, replace(${t.meshId}::text, '-', '') as "meshId",
        extract(epoch from ${t.expiresAt} - clock_timestamp())::float8 * 1000 as "restMs",
        coalesce(${t.lastUsedAt} > clock_timestamp() - make_interval(secs => ${NOTED_EVERY_SECONDS}::float8), false) as "isNoted"
      from ${t} where ${t.tokenId} = ${id}::text and ${t.revokedAt} is null and ${t.expiresAt} > clock_timestamp()`,
  )
  if (!row || !timingSafeEqual(row.hash, sha256(secret))) return undefined
  const { hash: _, isNoted, ...holder } = row
  if (!isNoted)
    await execute(
      db,
      sql`update ${t} set ${columnNames(t.lastUsedAt)} = clock_timestamp() where ${t.tokenId} = ${id}::text`,
    )
  return holder
}

/** Lists tokens, newest first. */
export function listAdminTokens(db: Database): Promise<ListedAdminToken[]> {
  const t = adminToken
  return execute<ListedAdminToken>(
    db,
    sql`
      select ${t.tokenId} as id, ${t.name} as name, ${t.scope} as scope, replace(${t.meshId}::text, '-', '') as "meshId",
        ${ms(t.createdAt)} as "createdAtMs", ${ms(sql`${t.expiresAt}`)} as "expiresAtMs",
        ${ms(sql`${t.lastUsedAt}`)} as "lastUsedAtMs", ${t.revokedAt} is not null as "isRevoked"
      from ${t} order by ${t.createdAt} desc, ${t.tokenId}`,
  )
}

/** Revokes a token, which brokers may accept for another three seconds. @returns whether the token exists */
export async function revokeAdminToken(db: Database, id: string): Promise<boolean> {
  const t = adminToken
  const rows = await execute(
    db,
    sql`
      with ended as (
        update ${t} set ${columnNames(t.revokedAt)} = coalesce(${t.revokedAt}, clock_timestamp()) where ${t.tokenId} = ${id}::text
        returning ${t.name} as name, ${t.meshId} as mesh_id
      ), audited as (
        insert into ${adminAudit} (${auditColumns})
        select ${auditValues(null, 'token.revoke')}, mesh_id, name, 1 from ended
      )
      select 1 from ended`,
  )
  return rows.length > 0
}
