/**
 * Stores how members are authenticated: key bindings, the current one in the member's row, and hashed access tokens for
 * HTTP.
 */
import { arrayLiteral, byteaText, type Database, DatabaseError } from '@sealpost/pg'
import { accessToken, columnNames, execute, formerBinding, formerIdentity, keyRecovery, member } from '@sealpost/schema'
import { assert, type MemberRef, type MeshId, type Millis, type PeerKey, type PeerNo, toHex } from '@sealpost/std'
import { type SQL, sql } from 'drizzle-orm'

/** A new member: its ed25519 key and the box key that it has signed, as bytes or hex. */
export interface MemberBinding {
  peerKey: PeerKey | Uint8Array
  boxKey: string | Uint8Array
  boxEpoch: number
  notAfterMs: Millis
  signature: string | Uint8Array
  /** A name that passes `isChosenName` and is unique in the mesh, ignoring case. Default: no name. */
  name?: string
  /** The role, by default `member`. An admin creates invites and revokes members. */
  role?: 'member' | 'admin'
}

export interface BindingRecord {
  readonly boxKey: Uint8Array
  readonly boxEpoch: number
  readonly notAfterMs: Millis
  readonly signature: Uint8Array
}

export const BOX_EPOCH_MAX = 2 ** 31 - 1
/** How long former bindings are stored, by which time messages sealed under them were delivered or have expired. */
const FORMER_DAYS = 60
const FORMER_MAX = 16

/**
 * Replaces the current binding, or extends it, after the caller has verified the signature. Repeating the call has no
 * effect.
 * @returns `stale_epoch` if another key has this epoch or a later one, or the member is revoked
 */
export async function replaceBinding(
  db: Database,
  { meshId, peer }: MemberRef,
  binding: BindingRecord,
): Promise<'done' | 'stale_epoch'> {
  const mesh = sql`${meshId}::uuid`
  const peerNo = sql`${peer}::int`
  const boxKey = sql`${byteaText(binding.boxKey)}::bytea`
  const boxEpoch = sql`${binding.boxEpoch}::int`
  const columns = columnNames(
    ...[formerBinding.meshId, formerBinding.peerNo, formerBinding.boxEpoch, formerBinding.boxKey],
    ...[formerBinding.bindingNotAfterMs, formerBinding.bindingSignature],
  )
  const [row] = await execute<{ outcome: 'done' | 'stale_epoch' }>(
    db,
    sql`
      with former as materialized (
        select m.* from ${member} m where m.mesh_id = ${mesh} and m.peer_no = ${peerNo} and m.revoked_at is null for update
      ), changed as (
        update ${member} set ${columnNames(member.boxKey)} = ${boxKey}, ${columnNames(member.boxEpoch)} = ${boxEpoch},
          ${columnNames(member.bindingNotAfterMs)} = ${binding.notAfterMs}::bigint,
          ${columnNames(member.bindingSignature)} = ${byteaText(binding.signature)}::bytea
        from former f
        where ${member.meshId} = ${mesh} and ${member.peerNo} = ${peerNo} and (f.box_epoch < ${boxEpoch}
          or f.box_epoch = ${boxEpoch} and f.box_key = ${boxKey} and f.binding_not_after_ms < ${binding.notAfterMs}::bigint)
        returning f.box_epoch, f.box_key, f.binding_not_after_ms, f.binding_signature
      ), kept as (
        insert into ${formerBinding} (${columns}) select ${mesh}, ${peerNo}, changed.* from changed
        where changed.box_epoch < ${boxEpoch} -- a renewed binding has no former key
        on conflict do nothing
      ), dropped as (
        delete from ${formerBinding} d using changed
        where d.mesh_id = ${mesh} and d.peer_no = ${peerNo} and (
          d.retired_at < clock_timestamp() - make_interval(days => ${FORMER_DAYS}) or d.box_epoch <= (
            select o.box_epoch from ${formerBinding} o where o.mesh_id = ${mesh} and o.peer_no = ${peerNo}
            order by o.box_epoch desc offset ${FORMER_MAX - 1} limit 1))
      )
      select case
        when exists (select from changed) then 'done'
        when exists (select from former f where f.box_epoch = ${boxEpoch} and f.box_key = ${boxKey}) then 'done'
        else 'stale_epoch' end as outcome`,
  )
  return row!.outcome
}

/** A binding and the identity key that signed it, which may have been rotated since. */
interface SignedBinding extends BindingRecord {
  readonly peer: PeerKey
}

/** Returns a member's current binding, then its former ones, newest first. Empty for a revoked or unknown member. */
export function findKeyHistory(db: Database, meshId: MeshId, peerKey: PeerKey): Promise<SignedBinding[]> {
  return execute<SignedBinding>(
    db,
    sql`
      with owner as (
        select m.* from ${member} m
        where m.mesh_id = ${meshId}::uuid and m.peer_key = ${byteaText(peerKey)}::bytea and m.revoked_at is null
      )
      select b.box_key as "boxKey", b.box_epoch as "boxEpoch", b.binding_not_after_ms as "notAfterMs",
        b.binding_signature as signature, encode(b.peer_key, 'hex') as peer
      from (
        select box_key, box_epoch, binding_not_after_ms, binding_signature, peer_key from owner
        union all
        select f.box_key, f.box_epoch, f.binding_not_after_ms, f.binding_signature, coalesce(f.peer_key, owner.peer_key)
        from owner join ${formerBinding} f on f.mesh_id = owner.mesh_id and f.peer_no = owner.peer_no
      ) as b order by b.box_epoch desc limit ${FORMER_MAX + 1}`,
  )
}

/** A rotation whose signatures the caller has verified, including the binding's. */
interface VerifiedIdentityRotation {
  readonly former: PeerKey
  readonly statement: Uint8Array
  readonly binding: MemberBinding & { readonly peerKey: PeerKey }
  /** SQL that must be true when the key changes. Default: nothing else must. */
  readonly mayTakeEffect?: SQL
}

/** `stale`: the key is no longer the member's, or the box epoch is not higher. */
type IdentityRotationOutcome = 'done' | 'key_taken' | 'stale'

const UNIQUE_VIOLATION = '23505'

/**
 * Rotates the key in one statement. The member keeps its number, role, name, consent, devices and mail, but not its
 * tokens.
 */
export async function rotateIdentity(
  db: Database,
  owner: MemberRef,
  record: VerifiedIdentityRotation,
): Promise<IdentityRotationOutcome> {
  try {
    return await rotate(db, owner, record)
  } catch (error) {
    // A concurrent enrolment has taken the key.
    if (error instanceof DatabaseError && error.sqlstate === UNIQUE_VIOLATION) return 'key_taken'
    throw error
  }
}

async function rotate(
  db: Database,
  { meshId, peer }: MemberRef,
  { former, statement, binding, mayTakeEffect = sql`true` }: VerifiedIdentityRotation,
): Promise<IdentityRotationOutcome> {
  const mesh = sql`${meshId}::uuid`
  const peerNo = sql`${peer}::int`
  const oldKey = sql`${byteaText(former)}::bytea`
  const newKey = sql`${byteaText(binding.peerKey)}::bytea`
  const bindingColumns = columnNames(
    ...[formerBinding.meshId, formerBinding.peerNo, formerBinding.peerKey, formerBinding.boxEpoch],
    ...[formerBinding.boxKey, formerBinding.bindingNotAfterMs, formerBinding.bindingSignature],
  )
  const [row] = await execute<{ outcome: IdentityRotationOutcome }>(
    db,
    sql`
      with taken as (
        select from ${member} m where m.mesh_id = ${mesh} and m.peer_key = ${newKey} and m.peer_no <> ${peerNo}
        union all
        select from ${formerIdentity} f where f.mesh_id = ${mesh} and f.peer_key = ${newKey}
      ), old as materialized (
        select m.* from ${member} m
        where m.mesh_id = ${mesh} and m.peer_no = ${peerNo} and m.peer_key = ${oldKey} and m.revoked_at is null
          and m.box_epoch < ${binding.boxEpoch}::int and not exists (select from taken) and ${mayTakeEffect}
        for update
      ), rotated as (
        update ${member} set ${columnNames(member.peerKey)} = ${newKey},
          ${columnNames(member.boxKey)} = ${byteaText(binding.boxKey)}::bytea, ${columnNames(member.boxEpoch)} = ${binding.boxEpoch}::int,
          ${columnNames(member.bindingNotAfterMs)} = ${binding.notAfterMs}::bigint,
          ${columnNames(member.bindingSignature)} = ${byteaText(binding.signature)}::bytea
        from old where ${member.meshId} = ${mesh} and ${member.peerNo} = ${peerNo}
        returning old.box_epoch, old.box_key, old.binding_not_after_ms, old.binding_signature
      ), noted as (
        insert into ${formerIdentity} (${columnNames(formerIdentity.meshId, formerIdentity.peerKey, formerIdentity.peerNo, formerIdentity.statement)})
        select ${mesh}, ${oldKey}, ${peerNo}, ${byteaText(statement)}::bytea from rotated
      ), signed as (
        update ${formerBinding} set ${columnNames(formerBinding.peerKey)} = ${oldKey}
        where ${formerBinding.meshId} = ${mesh} and ${formerBinding.peerNo} = ${peerNo}
          and ${formerBinding.peerKey} is null and exists (select from rotated)
      ), kept as (
        insert into ${formerBinding} (${bindingColumns}) select ${mesh}, ${peerNo}, ${oldKey}, rotated.* from rotated
      ), closed as (
        delete from ${accessToken} where ${accessToken.meshId} = ${mesh} and ${accessToken.peerNo} = ${peerNo}
          and exists (select from rotated)
      )
      select case
        when exists (select from rotated) then 'done'
        when exists (select from ${formerIdentity} f join ${member} m on m.mesh_id = f.mesh_id and m.peer_no = f.peer_no
          where f.mesh_id = ${mesh} and f.peer_key = ${oldKey} and m.peer_key = ${newKey}) then 'done'
        when exists (select from taken) then 'key_taken'
        else 'stale' end as outcome`,
  )
  return row!.outcome
}

/** SQL: a device certified the successor of the former identity `f` (docs/adr/0016), so `f.statement` is a recovery. */
export const isRecoverySql: SQL = sql`exists (select from ${keyRecovery} r
  where r.mesh_id = f.mesh_id and r.former_key = f.peer_key and r.statement = f.statement)`

/** How long mail to a former key reaches the member. */
const FOLLOWED_DAYS = 60

/** Returns the current keys of rotated ones, but not of recovered ones: nobody can open what is sealed to a lost key. */
export async function findSuccessors(
  db: Database,
  meshId: MeshId,
  formers: readonly PeerKey[],
): Promise<Map<PeerKey, PeerKey>> {
  if (formers.length === 0) return new Map()
  const rows = await execute<{ former: PeerKey; successor: PeerKey }>(
    db,
    sql`
      select encode(f.peer_key, 'hex') as former, encode(m.peer_key, 'hex') as successor
      from unnest(${arrayLiteral(formers.map(byteaText))}::bytea[]) as k (peer_key)
      join ${formerIdentity} f on f.mesh_id = ${meshId}::uuid and f.peer_key = k.peer_key
        and f.retired_at > clock_timestamp() - make_interval(days => ${FOLLOWED_DAYS}) and not ${isRecoverySql}
      join ${member} m on m.mesh_id = f.mesh_id and m.peer_no = f.peer_no and m.revoked_at is null`,
  )
  return new Map(rows.map(({ former, successor }) => [former, successor]))
}

export interface AccessTokenRef {
  readonly meshId: MeshId
  readonly hash: Uint8Array
}

export interface NewAccessToken extends AccessTokenRef {
  readonly peer: PeerNo
  readonly ttlSeconds: number
  readonly countMax: number
}

export interface AccessTokenHolder {
  readonly peer: PeerNo
  readonly peerKey: PeerKey
  /** The user of a device; otherwise, the peer itself. */
  readonly person: PeerNo
  readonly remainingMs: Millis
}

/**
 * Stores a token, and deletes expired ones.
 * @returns when it expires, in ms since 1970; null if the peer has too many
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

/** Returns undefined for an unknown, expired or revoked token, or one of a revoked peer. */
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

export async function revokeAccessToken(db: Database, token: AccessTokenRef): Promise<void> {
  await db.run(
    (sql) => sql`
      update access_token set revoked_at = coalesce(revoked_at, clock_timestamp())
      where mesh_id = ${token.meshId}::uuid and hash = ${byteaText(token.hash)}::bytea`,
  )
}
