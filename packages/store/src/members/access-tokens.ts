/** Access tokens for HTTP, by hash. They expire by the database clock. */
import { byteaText, type Database } from '@sealpost/pg'
import { assert, type MeshId, type Millis, type PeerKey, type PeerNo, toHex } from '@sealpost/std'

export interface AccessTokenRef {
  readonly meshId: MeshId
  /** 32 bytes. */
  readonly hash: Uint8Array
}

export interface NewAccessToken extends AccessTokenRef {
  readonly peer: PeerNo
  readonly ttlSeconds: number
  /** The limit of valid tokens per peer. */
  readonly countMax: number
}

/** The holder of a valid token. */
export interface AccessTokenHolder {
  readonly peer: PeerNo
  readonly peerKey: PeerKey
  /** The user of a device; otherwise the peer itself. */
  readonly person: PeerNo
  /** Until it expires. */
  readonly remainingMs: Millis
}

/**
 * Stores a token, and deletes the peer's expired ones.
 * @returns its expiry in ms since 1970; null if the peer has too many valid tokens
 * @throws DatabaseError
 */
export async function addAccessToken(db: Database, terms: NewAccessToken): Promise<Millis | null> {
  const { meshId, hash, peer, ttlSeconds, countMax } = terms
  const [row] = await db.run(
    (sql) => sql<{ at: number }[]>`
      with deleted as (
        delete from access_token
        where mesh_id = ${meshId}::uuid and peer_no = ${peer}::int and expires_at <= clock_timestamp()
      )
      insert into access_token (mesh_id, hash, peer_no, expires_at)
      select ${meshId}::uuid, ${byteaText(hash)}::bytea, ${peer}::int, now() + make_interval(secs => ${ttlSeconds}::float8)
      where (select count(*) from access_token
        where mesh_id = ${meshId}::uuid and peer_no = ${peer}::int and revoked_at is null
          and expires_at > clock_timestamp()) < ${countMax}::int
      returning extract(epoch from expires_at)::float8 * 1000 as at`,
  )
  return row ? Math.floor(row.at) : null
}

/** Returns undefined for an unknown, expired or revoked token, and for one of a revoked peer. @throws DatabaseError */
export async function findAccessToken(db: Database, token: AccessTokenRef): Promise<AccessTokenHolder | undefined> {
  const [row] = await db.run(
    (sql) => sql<{ peer: PeerNo; person: PeerNo; key: Uint8Array; rest: number }[]>`
      select m.peer_no as peer, coalesce(m.person, m.peer_no) as person, m.peer_key as key, extract(epoch from t.expires_at - clock_timestamp())::float8 * 1000 as rest
      from access_token t join member m on m.mesh_id = t.mesh_id and m.peer_no = t.peer_no
      where t.mesh_id = ${token.meshId}::uuid and t.hash = ${byteaText(token.hash)}::bytea
        and t.expires_at > clock_timestamp() and t.revoked_at is null and m.revoked_at is null
        and coalesce(m.vouched_until > clock_timestamp(), true)`,
  )
  if (!row) return undefined
  assert(row.key.length === 32, 'a peer key has 32 bytes')
  return { peer: row.peer, person: row.person, peerKey: toHex(row.key) as PeerKey, remainingMs: row.rest }
}

/** @throws DatabaseError */
export async function revokeAccessToken(db: Database, token: AccessTokenRef): Promise<void> {
  await db.run(
    (sql) => sql`
      update access_token set revoked_at = coalesce(revoked_at, clock_timestamp())
      where mesh_id = ${token.meshId}::uuid and hash = ${byteaText(token.hash)}::bytea`,
  )
}
