/**
 * Tokens of operators, `spa_<id>_<secret>`: found by id, compared in constant time. Only a client of the database
 * creates them, never a broker, so that a compromised broker can't.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { byteaText, type Database } from '@sealpost/pg'
import { adminAudit, adminToken, columnNames, execute } from '@sealpost/schema'
import type { MeshId, Millis } from '@sealpost/std'
import { type SQL, sql } from 'drizzle-orm'
import { auditColumns, auditValues } from './audit.ts'

/** `operate` includes `read`. */
export const ADMIN_SCOPES = ['read', 'operate'] as const
export type AdminScope = (typeof ADMIN_SCOPES)[number]

export interface NewAdminToken {
  /** Appears in the audit. */
  readonly name: string
  readonly scope: AdminScope
  /** Null for everything. */
  readonly meshId: MeshId | null
  readonly ttlSeconds: number
}

export interface IssuedAdminToken {
  readonly id: string
  /** Shown only here. */
  readonly token: string
  readonly expiresAtMs: Millis
}

export interface AdminTokenHolder {
  readonly name: string
  readonly scope: AdminScope
  readonly meshId: MeshId | null
  /** Until it expires. */
  readonly remainingMs: Millis
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
/** The last use is recorded at most once a minute, since each record is a commit. */
const NOTED_EVERY_SECONDS = 60

const sha256 = (secret: string): Buffer => createHash('sha256').update(secret).digest()
const ms = (instant: SQL | typeof adminToken.createdAt): SQL =>
  sql`floor(extract(epoch from ${instant}) * 1000)::float8`

/** @throws DatabaseError */
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

/** Returns undefined for a malformed, unknown, expired or revoked token. Records the use. @throws DatabaseError */
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

/** Lists the newest first. @throws DatabaseError */
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

/** Brokers may accept it for another three seconds. @returns whether it exists @throws DatabaseError */
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
