/**
 * Tokens of operators: `spa_<id>_<secret>`, found by their id, compared in constant time. They are made on the database
 * itself and never by a broker, so that one that was taken over can't make itself any.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import type { MeshId, Millis } from '@sealpost/std'
import { type SQL, sql } from 'drizzle-orm'
import { auditColumns, auditOf } from './audit.ts'
import { byteaText } from './column-types.ts'
import type { Database } from './connect.ts'
import { execute, names } from './drizzle-run.ts'
import { adminAudit, adminToken } from './schema-admin.ts'

/** `read` sees everything, `operate` changes it, too. */
export const ADMIN_SCOPES = ['read', 'operate'] as const
export type AdminScope = (typeof ADMIN_SCOPES)[number]

export interface AdminTokenTerms {
  /** What people call it; the audit names it. */
  readonly name: string
  readonly scope: AdminScope
  /** None: all meshes, and what is of no mesh. */
  readonly meshId: MeshId | null
  readonly ttlSeconds: number
}

export interface IssuedAdminToken {
  readonly id: string
  /** The only time it is seen. */
  readonly token: string
  readonly expiresAtMs: Millis
}

export interface AdminTokenHolder {
  readonly name: string
  readonly scope: AdminScope
  readonly meshId: MeshId | null
  /** Until it is over. */
  readonly restMs: Millis
}

export interface ListedAdminToken extends Omit<AdminTokenHolder, 'restMs'> {
  readonly id: string
  readonly createdAtMs: Millis
  readonly expiresAtMs: Millis
  readonly lastUsedAtMs: Millis | null
  readonly isRevoked: boolean
}

const ID_BYTES = 8
const SECRET_BYTES = 32
const TOKEN = /^spa_([0-9a-f]{16})_([A-Za-z0-9_-]{43})$/
/** A token that is used all day is noted once a minute: each note is a commit. */
const NOTED_EVERY_SECONDS = 60

const sha256 = (secret: string): Buffer => createHash('sha256').update(secret).digest()
const ms = (instant: SQL | typeof adminToken.createdAt): SQL =>
  sql`floor(extract(epoch from ${instant}) * 1000)::float8`

/** @throws DatabaseError */
export async function addAdminToken(
  db: Database,
  { name, scope, meshId, ttlSeconds }: AdminTokenTerms,
): Promise<IssuedAdminToken> {
  const id = randomBytes(ID_BYTES).toString('hex')
  const secret = randomBytes(SECRET_BYTES).toString('base64url')
  const t = adminToken
  const [row] = await execute<{ expiresAtMs: Millis }>(
    db,
    sql`
      with added as (
        insert into ${t} (${names(t.tokenId, t.hash, t.name, t.scope, t.meshId, t.expiresAt)})
        values (${id}::text, ${byteaText(sha256(secret))}::bytea, ${name}::text, ${scope}::text, ${meshId}::uuid,
          clock_timestamp() + make_interval(secs => ${ttlSeconds}::float8))
        returning ${names(t.expiresAt)}
      ), audited as (
        insert into ${adminAudit} (${auditColumns})
        select ${auditOf(null, 'token.create')}, ${meshId}::uuid, ${`${name} (${scope})`}::text, 1
      )
      select floor(extract(epoch from expires_at) * 1000)::float8 as "expiresAtMs" from added`,
  )
  return { id, token: `spa_${id}_${secret}`, expiresAtMs: row!.expiresAtMs }
}

/** Undefined: malformed, unknown, over or revoked. Notes that it was used. @throws DatabaseError */
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
    await execute(db, sql`update ${t} set ${names(t.lastUsedAt)} = clock_timestamp() where ${t.tokenId} = ${id}::text`)
  return holder
}

/** The latest first. @throws DatabaseError */
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

/** @returns whether there is one. A broker believes in it for three seconds more. @throws DatabaseError */
export async function revokeAdminToken(db: Database, id: string): Promise<boolean> {
  const t = adminToken
  const rows = await execute(
    db,
    sql`
      with ended as (
        update ${t} set ${names(t.revokedAt)} = coalesce(${t.revokedAt}, clock_timestamp()) where ${t.tokenId} = ${id}::text
        returning ${t.name} as name, ${t.meshId} as mesh_id
      ), audited as (
        insert into ${adminAudit} (${auditColumns})
        select ${auditOf(null, 'token.revoke')}, mesh_id, name, 1 from ended
      )
      select 1 from ended`,
  )
  return rows.length > 0
}
