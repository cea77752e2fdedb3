/**
 * Stores the prekeys of members, and hands out each one-time prekey once. Callers have verified the statements. A claim
 * is one committed statement, so a claim whose reply is lost wastes a key.
 */
import { arrayLiteral, byteaText, type Database } from '@sealpost/pg'
import { consent, execute, member, oneTimePrekey, prekeyStatement } from '@sealpost/schema'
import type { MemberRef, MeshId, Millis, PeerKey, PeerNo } from '@sealpost/std'
import { sql } from 'drizzle-orm'

/**
 * The maximum number of unclaimed one-time prekeys of a peer: 4 lanes with each of 64 peers. They use about 40 kB of the
 * database.
 */
export const ONE_TIME_PREKEYS_MAX = 256
/** What one user can claim of one peer in a day: 4 lanes for each of 8 devices. That is an eighth of the peer's keys. */
export const PREKEYS_PER_TARGET_MAX = 32
/** What one user can claim in a day: 4 lanes for each of 8 devices, with 64 peers. */
export const PREKEYS_PER_CLAIMER_MAX = 2048
/** How long a claimed key counts, and is remembered so that no publication offers it again. */
const CLAIMED_FOR = sql.raw(`interval '1 day'`)

export interface PublishedPrekey {
  readonly id: number
  readonly publicKey: Uint8Array
}

export interface PrekeyPublication {
  readonly statement: Uint8Array
  readonly issuedAtMs: Millis
  readonly oneTime: readonly PublishedPrekey[]
  /** Whether the unclaimed one-time prekeys that are stored are deleted, because the peer has lost their secrets. */
  readonly replaces: boolean
}

export type PublishOutcome =
  | { readonly status: 'done'; readonly oneTimeLeft: number; readonly lastResorts: number }
  /** `prekey_rolled_back`: a newer statement is stored, or another one of the same time. */
  | { readonly status: 'prekey_rolled_back' | 'too_many_prekeys' | 'revoked' }

/**
 * Stores a statement and adds one-time prekeys, or changes nothing. Repeating the call has no further effect: a key that
 * is stored, or was claimed in the last day, is not added again. Concurrent calls may exceed `ONE_TIME_PREKEYS_MAX`.
 */
export async function publishPrekeys(
  db: Database,
  { meshId, peer, peerKey }: MemberRef & { readonly peerKey: PeerKey },
  { statement, issuedAtMs, oneTime, replaces }: PrekeyPublication,
): Promise<PublishOutcome> {
  const [mesh, peerNo] = [sql`${meshId}::uuid`, sql`${peer}::int`]
  const ids = sql`${arrayLiteral(oneTime.map(({ id }) => id))}::bigint[]`
  const keys = sql`${arrayLiteral(oneTime.map(({ publicKey }) => byteaText(publicKey)))}::bytea[]`
  const [row] = await execute<PublishRow>(
    db,
    sql`
      with owner as materialized (
        -- Locked, so that no prekeys are added after a revocation or a rotation of the key has deleted them.
        select m.peer_no from ${member} m
        where m.mesh_id = ${mesh} and m.peer_no = ${peerNo} and m.peer_key = ${byteaText(peerKey)}::bytea
          and m.revoked_at is null for no key update
      ), offered as (
        select p.key_id from ${oneTimePrekey} p
        where p.mesh_id = ${mesh} and p.peer_no = ${peerNo} and p.claimed_at is null
          and (not ${replaces}::boolean or p.key_id = any (${ids}))
      ), room as materialized (
        select (select count(*) from offered where key_id <> all (${ids})) + cardinality(${ids}) <= ${ONE_TIME_PREKEYS_MAX} as is_there
      ), stated as (
        insert into ${prekeyStatement} as s (mesh_id, peer_no, statement, issued_at_ms)
        select ${mesh}, peer_no, ${byteaText(statement)}::bytea, ${issuedAtMs}::bigint from owner where (select is_there from room)
        on conflict (mesh_id, peer_no) do update set statement = excluded.statement, issued_at_ms = excluded.issued_at_ms,
          last_resorts = case when s.statement = excluded.statement then s.last_resorts else 0 end
        where s.issued_at_ms < excluded.issued_at_ms or s.statement = excluded.statement
        returning last_resorts
      ), dropped as (
        delete from ${oneTimePrekey} p where p.mesh_id = ${mesh} and p.peer_no = ${peerNo} and exists (select from stated)
          and (p.claimed_at < clock_timestamp() - ${CLAIMED_FOR}
            or p.claimed_at is null and ${replaces}::boolean and p.key_id <> all (${ids}))
      ), added as (
        insert into ${oneTimePrekey} (mesh_id, peer_no, key_id, public_key)
        select ${mesh}, ${peerNo}, k.id, k.public_key from unnest(${ids}, ${keys}) as k (id, public_key)
        where exists (select from stated) on conflict do nothing returning 1
      )
      select (select last_resorts from stated) as "lastResorts",
        ((select count(*) from offered) + (select count(*) from added))::int as "oneTimeLeft",
        case when not exists (select from owner) then 'revoked'
          when not (select is_there from room) then 'too_many_prekeys'
          when not exists (select from stated) then 'prekey_rolled_back' else 'done' end as status`,
  )
  const { status, oneTimeLeft, lastResorts } = row!
  return status === 'done' ? { status, oneTimeLeft, lastResorts } : { status }
}

interface PublishRow {
  readonly status: PublishOutcome['status']
  readonly oneTimeLeft: number
  readonly lastResorts: number
}

/** Who claims: a user, with all its devices. */
export interface PrekeyClaimer {
  readonly meshId: MeshId
  readonly user: PeerNo
}

/**
 * `last_resort`: no one-time prekey is left, or this user has reached a limit. `no_prekeys`: the peer has not published any.
 * `recipient_unknown`: not a member. `not_allowed`: the peer does not accept mail from this user.
 */
export type PrekeyClaim =
  | { readonly status: 'claimed'; readonly statement: Uint8Array; readonly oneTime: PublishedPrekey }
  | {
      readonly status: 'last_resort'
      readonly statement: Uint8Array
      readonly reason: 'none_left' | 'claimed_too_many'
    }
  | { readonly status: 'no_prekeys' | 'recipient_unknown' | 'not_allowed' }

/**
 * Claims a one-time prekey of a peer, which no other claim gets. Concurrent claims of one user may exceed its limits.
 * Walks: member's, consent's and prekey_statement's primary keys, member_peer_key, one_time_prekey_claimer,
 * one_time_prekey_unclaimed.
 */
export async function claimPrekey(
  db: Database,
  { meshId, user }: PrekeyClaimer,
  target: PeerKey,
): Promise<PrekeyClaim> {
  const [mesh, claimer] = [sql`${meshId}::uuid`, sql`${user}::int`]
  const [row] = await execute<ClaimRow>(
    db,
    sql`
      with target as materialized (
        select m.peer_no, s.statement, p.peer_no = ${claimer}
          or coalesce((select not c.is_blocked from ${consent} c
            where c.mesh_id = ${mesh} and c.owner = p.peer_no and c.peer_no = ${claimer}), p.consent_policy = 'open') as admits
        from ${member} m join ${member} p on p.mesh_id = m.mesh_id and p.peer_no = coalesce(m.person, m.peer_no)
        left join ${prekeyStatement} s on s.mesh_id = m.mesh_id and s.peer_no = m.peer_no
        where m.mesh_id = ${mesh} and m.peer_key = ${byteaText(target)}::bytea and not m.is_pool
          and m.revoked_at is null and coalesce(m.vouched_until > clock_timestamp(), true)
      ), claims as materialized (
        select count(*) filter (where p.peer_no = (select peer_no from target)) < ${PREKEYS_PER_TARGET_MAX}
          and count(*) < ${PREKEYS_PER_CLAIMER_MAX} as are_left
        from ${oneTimePrekey} p where p.mesh_id = ${mesh} and p.claimer = ${claimer}
          and p.claimed_at > clock_timestamp() - ${CLAIMED_FOR}
      ), allowed as materialized (
        select t.peer_no, c.are_left from target t, claims c where t.admits and t.statement is not null
      ), picked as materialized (
        -- Skips the keys of concurrent claims, and checks each key again once it is locked.
        select p.key_id from ${oneTimePrekey} p
        where p.mesh_id = ${mesh} and p.peer_no = (select peer_no from allowed where are_left) and p.claimed_at is null
        limit 1 for update skip locked
      ), taken as (
        update ${oneTimePrekey} p set claimer = ${claimer}, claimed_at = clock_timestamp() from picked, allowed a
        where p.mesh_id = ${mesh} and p.peer_no = a.peer_no and p.key_id = picked.key_id
        returning p.key_id, p.public_key
      ), counted as (
        update ${prekeyStatement} s set last_resorts = s.last_resorts + 1 from allowed a
        where s.mesh_id = ${mesh} and s.peer_no = a.peer_no and a.are_left and not exists (select from taken)
      )
      select t.statement, taken.key_id::float8 as id, taken.public_key as "publicKey",
        case when t.peer_no is null then 'recipient_unknown' when not t.admits then 'not_allowed'
          when t.statement is null then 'no_prekeys' when taken.key_id is not null then 'claimed'
          else 'last_resort' end as status,
        case when c.are_left then 'none_left' else 'claimed_too_many' end as reason
      from claims c left join target t on true left join taken on true`,
  )
  return claimOf(row!)
}

interface ClaimRow {
  readonly status: PrekeyClaim['status']
  readonly reason: 'none_left' | 'claimed_too_many'
  readonly statement: Uint8Array
  readonly id: number
  readonly publicKey: Uint8Array
}

function claimOf({ status, reason, statement, id, publicKey }: ClaimRow): PrekeyClaim {
  if (status === 'claimed') return { status, statement, oneTime: { id, publicKey } }
  return status === 'last_resort' ? { status, statement, reason } : { status }
}
