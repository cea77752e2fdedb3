/**
 * Enrols members by invite, lists and revokes members, and revokes invites. Each operation is an idempotent statement,
 * which also checks permissions. Callers have verified the signatures.
 */
import { arrayLiteral, byteaText, type Database, DatabaseError } from '@sealpost/pg'
import {
  columnNames,
  consent,
  device,
  execute,
  formerIdentity,
  invite,
  member,
  memberProof,
  senderMark,
  session,
} from '@sealpost/schema'
import {
  type InviteId,
  type MemberRef,
  type MeshId,
  type Millis,
  type PeerKey,
  type PeerNo,
  unicodeName,
} from '@sealpost/std'
import { foldedName, skeletonOf } from '@sealpost/std/confusables'
import { type SQL, sql } from 'drizzle-orm'
import type { MemberBinding } from './key-bindings.ts'

/** An invite whose signature the caller has verified. */
export interface VerifiedInvite {
  readonly meshId: MeshId
  readonly inviteId: InviteId
  readonly hash: Uint8Array
  readonly issuer: PeerKey
  readonly usesMax: number
  readonly notAfterMs: Millis
  readonly role: 'member' | 'admin'
}

export interface NewMember extends MemberBinding {
  readonly peerKey: PeerKey
  /** The ASCII form of a chosen name. */
  readonly name: string
  /** The signed enrolment, stored as proof for other members. */
  readonly certificate?: { readonly bytes: Uint8Array; readonly atMs: Millis }
}

/**
 * `invite_refused`: the mesh does not exist; the issuer is not an admin or was revoked; or the invite has expired, was
 * revoked, is used up, or differs from the stored invite with the same id.
 */
export type EnrolOutcome =
  | { readonly status: 'enrolled'; readonly name: string }
  | { readonly status: 'invite_refused' | 'already_member' | 'name_taken' | 'revoked' | 'too_many_members' }

/**
 * Uses the invite once, and enrols the member with its session and its sender mark, in one statement. A repeated call
 * by the same member returns the same enrolment. Concurrent calls may exceed `membersMax`, which includes devices, by
 * one.
 */
export async function enrolByInvite(
  db: Database,
  claim: VerifiedInvite,
  candidate: NewMember,
  membersMax = MEMBERS_MAX,
): Promise<EnrolOutcome> {
  try {
    return await enrol(db, claim, candidate, membersMax)
  } catch (error) {
    // A concurrent enrolment with this key or name won the race, and a second attempt sees its rows.
    if (error instanceof DatabaseError && error.sqlstate === UNIQUE_VIOLATION)
      return enrol(db, claim, candidate, membersMax)
    throw error
  }
}

const UNIQUE_VIOLATION = '23505'
const NO_BYTES = new Uint8Array(0)
/** A `membersMax` that means no limit. */
export const MEMBERS_MAX = 2 ** 31 - 1

/** SQL: the mesh has room for one more member. Reads at most `membersMax` rows. */
export const hasRoomSql = (meshId: SQL, membersMax: number): SQL => sql`
  (${membersMax}::int > (select count(*) from (select from ${member} m
    where m.mesh_id = ${meshId} and m.revoked_at is null and not m.is_pool limit ${membersMax}::int) as present))`

/** SQL: the key that vouched for a device `d`, at its fixed place in the statement (`readDevice`). */
export const voucherKeySql: SQL = sql.raw('substring(d.statement from 21 for 32)')

/** SQL: the devices of each user in `named (peer_no, peer_key, person)`, and those for which a device in it vouched. */
export const dependentsSql = (meshId: SQL): SQL => sql`
  select d.peer_no from ${device} d join named on d.person = coalesce(named.person, named.peer_no)
  where d.mesh_id = ${meshId} and (named.person is null or ${voucherKeySql} = named.peer_key)`

/** SQL: the columns of a proof, in the order of its statements. */
export const proofColumns: SQL = columnNames(
  ...[memberProof.meshId, memberProof.peerKey, memberProof.kind, memberProof.issuer, memberProof.atMs],
  memberProof.statement,
)

/** What the database compares of a name. */
interface NameKeys {
  readonly skeleton: string
  readonly folded: string
}

/** Returns what the database compares of a name in ASCII form. */
export function nameKeysOf(name: string): NameKeys {
  const shown = unicodeName(name)
  return { skeleton: skeletonOf(shown), folded: foldedName(shown) }
}

/** Replaces the names of members in the rows by their Unicode form. */
export const withUnicodeNames = <Row extends object>(rows: readonly Row[]): Row[] =>
  rows.map((row) => {
    const names = Object.entries(row).filter(([column, name]) => /name$/i.test(column) && typeof name === 'string')
    return { ...row, ...Object.fromEntries(names.map(([column, name]) => [column, unicodeName(name)])) }
  })

/** SQL: a member of the mesh has a name that a reader could mistake for this one. */
export const isTakenSql = (meshId: SQL, { name, skeleton, folded }: Record<'name' | keyof NameKeys, SQL>): SQL => {
  const isThere = (condition: SQL) =>
    sql`exists (select from ${member} m where m.mesh_id = ${meshId} and m.name is not null and ${condition})`
  return sql`(${sql.join(
    [
      isThere(sql`lower(m.name) = lower(${name})`),
      isThere(sql`lower(m.name) = ${folded}`),
      isThere(sql`m.folded = ${folded}`),
      isThere(sql`m.skeleton = ${skeleton}`),
      isThere(sql`m.skeleton is null and name_skeleton(m.name) = ${skeleton}`),
    ],
    sql` or `,
  )})`
}

async function enrol(
  db: Database,
  claim: VerifiedInvite,
  candidate: NewMember,
  membersMax: number,
): Promise<EnrolOutcome> {
  const meshId = sql`${claim.meshId}::uuid`
  const inviteId = sql`${claim.inviteId}::uuid`
  const hash = sql`${byteaText(claim.hash)}::bytea`
  const notAfter = sql`to_timestamp(${claim.notAfterMs}::float8 / 1000)`
  const usesMax = sql`${claim.usesMax}::int`
  const peerKey = sql`${byteaText(candidate.peerKey)}::bytea`
  const name = sql`${candidate.name}::text`
  const keys = nameKeysOf(candidate.name)
  const [skeleton, folded] = [sql`${keys.skeleton}::text`, sql`${keys.folded}::text`]
  const memberColumns = columnNames(
    ...[member.meshId, member.peerKey, member.boxKey, member.boxEpoch, member.bindingNotAfterMs],
    ...[member.bindingSignature, member.name, member.skeleton, member.folded, member.role, member.inviteId],
  )
  const inviteColumns = columnNames(
    ...[invite.meshId, invite.inviteId, invite.hash, invite.issuer, invite.uses, invite.usesMax, invite.notAfter],
  )
  const { certificate } = candidate
  const [row] = await execute<{ status: EnrolOutcome['status']; name: string }>(
    db,
    sql`
      with known as (
        select ${member.revokedAt} is not null as is_revoked, ${member.inviteId} = ${inviteId} as is_by_this, ${member.name}
        from ${member} where ${member.meshId} = ${meshId} and ${member.peerKey} = ${peerKey}
        union all
        select true, false, null from ${formerIdentity}
        where ${formerIdentity.meshId} = ${meshId} and ${formerIdentity.peerKey} = ${peerKey}
      ), good as (
        select ${member.peerNo} as issuer from ${member}
        where ${member.meshId} = ${meshId} and ${member.peerKey} = ${byteaText(claim.issuer)}::bytea
          and ${member.role} = 'admin' and ${member.revokedAt} is null and ${notAfter} > clock_timestamp()
          and not exists (select from ${invite} where ${invite.meshId} = ${meshId} and ${invite.inviteId} = ${inviteId}
            and (${invite.revokedAt} is not null or ${invite.hash} <> ${hash} or ${invite.uses} >= ${usesMax}))
        union all
        -- An operator's invite has no issuer and was stored when it was created.
        select null from ${invite}
        where ${invite.meshId} = ${meshId} and ${invite.inviteId} = ${inviteId} and ${invite.issuer} is null
          and ${invite.hash} = ${hash} and ${invite.revokedAt} is null and ${invite.uses} < ${usesMax}
          and ${notAfter} > clock_timestamp()
      ), namesake as materialized (
        select ${isTakenSql(meshId, { name, skeleton, folded })} as is_there
      ), room as materialized (
        select ${hasRoomSql(meshId, membersMax)} as is_there
      ), used as (
        insert into ${invite} (${inviteColumns})
        select ${meshId}, ${inviteId}, ${hash}, issuer, 1, ${usesMax}, ${notAfter} from good
        where not exists (select from known) and not (select is_there from namesake) and (select is_there from room)
        -- Repeated, since a statement that waited for another enrolment has seen the old row.
        on conflict (${columnNames(invite.meshId, invite.inviteId)}) do update set ${columnNames(invite.uses)} = ${invite.uses} + 1
        where ${invite.revokedAt} is null and ${invite.hash} = ${hash} and ${invite.uses} < ${usesMax}
        returning 1
      ), added as (
        insert into ${member} (${memberColumns})
        select ${meshId}, ${peerKey}, ${byteaText(candidate.boxKey)}::bytea, ${candidate.boxEpoch}::int,
          ${candidate.notAfterMs}::bigint, ${byteaText(candidate.signature)}::bytea, ${name}, ${skeleton}, ${folded}, ${claim.role}::text, ${inviteId}
        from used returning ${columnNames(member.peerNo)} as peer_no
      ), opened as (
        insert into ${session} (${columnNames(session.meshId, session.peerNo)}) select ${meshId}, peer_no from added
      ), marked as (
        insert into ${senderMark} (${columnNames(senderMark.meshId, senderMark.sender)}) select ${meshId}, peer_no from added
      ), proved as (
        insert into ${memberProof} (${proofColumns})
        select ${meshId}, ${peerKey}, 'certificate', ${byteaText(claim.issuer)}::bytea, ${certificate?.atMs ?? 0}::bigint,
          ${byteaText(certificate?.bytes ?? NO_BYTES)}::bytea
        from added where ${certificate !== undefined}::boolean on conflict do nothing
      )
      select coalesce((select name from known), ${name}) as name, case
        when (select is_revoked from known) then 'revoked'
        when (select is_by_this from known) then 'enrolled'
        when exists (select from added) then 'enrolled'
        when not exists (select from good) then 'invite_refused'
        when exists (select from known) then 'already_member'
        when (select is_there from namesake) then 'name_taken'
        when not (select is_there from room) then 'too_many_members'
        else 'invite_refused' end as status`,
  )
  const { status, name: enrolledName } = row!
  return status === 'enrolled' ? { status, name: enrolledName } : { status }
}

export interface ListedMember {
  readonly peerKey: PeerKey
  /** Empty if the member has none. */
  readonly name: string
  readonly role: 'member' | 'admin'
}

/** Lists members in key order after `after`, without revoked ones. */
export function listMembers(
  db: Database,
  meshId: MeshId,
  { after, limit }: { after: PeerKey; limit: number },
): Promise<ListedMember[]> {
  return execute<ListedMember>(
    db,
    sql`
      select encode(${member.peerKey}, 'hex') as "peerKey", coalesce(${member.name}, '') as name, ${member.role}
      from ${member}
      where ${member.meshId} = ${meshId}::uuid and ${member.peerKey} > ${byteaText(after)}::bytea
        and ${member.revokedAt} is null and not ${member.isPool}
      order by ${member.peerKey} limit ${limit}::int`,
  )
}

export interface RevokedPeer {
  readonly peerKey: PeerKey
  readonly peer: PeerNo
}

/**
 * Revokes members with their devices, devices with those that they vouched for, and invites, on behalf of an admin or,
 * to leave, of the member itself.
 * @returns the keys that are or were members; null if the caller has no permission, in which case nothing changes
 */
export async function revokeMembers(
  db: Database,
  { meshId, peer }: { meshId: MeshId; peer: PeerNo },
  { members, invites }: { members: readonly PeerKey[]; invites: readonly InviteId[] },
): Promise<RevokedPeer[] | null> {
  const keys = sql`${arrayLiteral(members.map(byteaText))}::bytea[]`
  const ids = sql`${arrayLiteral(invites)}::uuid[]`
  const rows = await execute<{ isAllowed: boolean; peer: PeerNo | null; peerKey: PeerKey }>(
    db,
    sql`
      with requester as (
        select from ${member} where ${member.meshId} = ${meshId}::uuid and ${member.peerNo} = ${peer}::int
          and ${member.revokedAt} is null and (${member.role} = 'admin'
            or (cardinality(${keys}) > 0 and ${member.peerKey} = all (${keys}) and cardinality(${ids}) = 0))
      ), named as (
        select m.peer_no, m.peer_key, m.person from ${member} m
        where m.mesh_id = ${meshId}::uuid and m.peer_key = any (${keys}) and not m.is_pool
      ), ended as (
        update ${member} set ${columnNames(member.revokedAt)} = coalesce(${member.revokedAt}, clock_timestamp())
        where ${member.meshId} = ${meshId}::uuid and exists (select from requester) and (
          ${member.peerNo} in (select peer_no from named)
          or ${member.peerNo} in (${dependentsSql(sql`${meshId}::uuid`)}))
        returning ${member.peerNo} as peer_no, ${member.peerKey} as peer_key
      ), revoked_invites as (
        insert into ${invite} (${columnNames(invite.meshId, invite.inviteId, invite.revokedAt)})
        select distinct ${meshId}::uuid, id, clock_timestamp() from unnest(${ids}) as i (id)
        where exists (select from requester)
        on conflict (${columnNames(invite.meshId, invite.inviteId)})
        do update set ${columnNames(invite.revokedAt)} = coalesce(${invite.revokedAt}, excluded.${columnNames(invite.revokedAt)})
      )
      select is_allowed as "isAllowed", peer_no as peer, encode(peer_key, 'hex') as "peerKey"
      from (select exists (select from requester) as is_allowed) as asked left join ended on true`,
  )
  if (!rows[0]!.isAllowed) return null
  return rows.flatMap(({ peer, peerKey }) => (peer === null ? [] : [{ peer, peerKey }]))
}

/** A change to a peer's consent: the policy, and the peers that it allows or blocks. */
export interface ConsentChange {
  /** Null leaves the policy unchanged. */
  readonly policy: 'open' | 'contacts' | null
  /** If a peer occurs twice, its last entry applies. */
  readonly verdicts: readonly { readonly peer: PeerKey; readonly verdict: 'allowed' | 'blocked' | 'forgotten' }[]
}

interface ConsentRecord {
  readonly policy: 'open' | 'contacts'
  readonly version: number
  /** The listed peers, ordered by key. */
  readonly named: readonly { readonly peer: PeerNo; readonly peerKey: PeerKey; readonly isBlocked: boolean }[]
}

/** The maximum number of peers that one peer can allow or block. Concurrent changes may exceed it. */
export const NAMED_MAX = 1000

/**
 * Applies the change, unless it would exceed `NAMED_MAX`. Ignores an entry for the peer itself.
 * @returns whether the change was applied, and the listed keys that were never members
 */
export async function changeConsent(
  db: Database,
  { meshId, peer }: MemberRef,
  { policy, verdicts }: ConsentChange,
): Promise<{ isDone: boolean; unknown: PeerKey[] }> {
  const mesh = sql`${meshId}::uuid`
  const owner = sql`${peer}::int`
  const rows = await execute<{ isDone: boolean; peerKey: PeerKey | null }>(
    db,
    sql`
      with named as materialized (
        -- A device represents its user: consent is between users.
        select distinct on (coalesce(m.person, m.peer_no)) coalesce(m.person, m.peer_no) as peer_no, g.verdict
        from unnest(${arrayLiteral(verdicts.map((v) => byteaText(v.peer)))}::bytea[],
          ${arrayLiteral(verdicts.map((v) => v.verdict))}::text[]) with ordinality as g (peer_key, verdict, place)
        join ${member} m on m.mesh_id = ${mesh} and m.peer_key = g.peer_key
        order by coalesce(m.person, m.peer_no), g.place desc
      ), others as (
        select n.peer_no, n.verdict from named n where n.peer_no <> ${owner}
      ), fitting as (
        select where ${NAMED_MAX} >= (select count(*) from others o where o.verdict <> 'forgotten') + (
          select count(*) from ${consent} c where c.mesh_id = ${mesh} and c.owner = ${owner}
            and not exists (select from others o where o.peer_no = c.peer_no))
      ), changed as (
        update ${member} set ${columnNames(member.consentVersion)} = ${member.consentVersion} + 1,
          ${columnNames(member.consentPolicy)} = coalesce(${policy}::text, ${member.consentPolicy})
        where ${member.meshId} = ${mesh} and ${member.peerNo} = ${owner} and ${member.revokedAt} is null
          and exists (select from fitting)
        returning ${columnNames(member.peerNo)} as owner
      ), deleted as (
        delete from ${consent} c using others o, changed
        where c.mesh_id = ${mesh} and c.owner = changed.owner and c.peer_no = o.peer_no and o.verdict = 'forgotten'
      ), kept as (
        insert into ${consent} (${columnNames(consent.meshId, consent.owner, consent.peerNo, consent.isBlocked)})
        select ${mesh}, changed.owner, o.peer_no, o.verdict = 'blocked' from changed, others o where o.verdict <> 'forgotten'
        on conflict (${columnNames(consent.meshId, consent.owner, consent.peerNo)})
        do update set ${columnNames(consent.isBlocked)} = excluded.is_blocked
      )
      select exists (select from changed) as "isDone", encode(m.peer_key, 'hex') as "peerKey"
      from (select) as one left join ${member} m on m.mesh_id = ${mesh}
        and m.peer_key = any (${arrayLiteral(verdicts.map((v) => byteaText(v.peer)))}::bytea[])`,
  )
  const known = new Set(rows.map(({ peerKey }) => peerKey))
  const unknown = verdicts.map(({ peer }) => peer).filter((peerKey) => !known.has(peerKey))
  return { isDone: rows[0]!.isDone, unknown: [...new Set(unknown)] }
}

/** Returns null if the peer is not a member. */
export async function findConsent(db: Database, { meshId, peer }: MemberRef): Promise<ConsentRecord | null> {
  const rows = await execute<
    Pick<ConsentRecord, 'policy' | 'version'> & { peer: PeerNo | null; peerKey: PeerKey; isBlocked: boolean }
  >(
    db,
    sql`
      select m.consent_policy as policy, m.consent_version as version, c.peer_no as peer,
        encode(p.peer_key, 'hex') as "peerKey", c.is_blocked as "isBlocked"
      from ${member} m
      left join ${consent} c on c.mesh_id = m.mesh_id and c.owner = m.peer_no
      left join ${member} p on p.mesh_id = c.mesh_id and p.peer_no = c.peer_no
      where m.mesh_id = ${meshId}::uuid and m.peer_no = ${peer}::int
      order by p.peer_key limit ${NAMED_MAX}`,
  )
  const [first] = rows
  if (!first) return null
  const named = rows.flatMap(({ peer, peerKey, isBlocked }) => (peer === null ? [] : [{ peer, peerKey, isBlocked }]))
  return { policy: first.policy, version: first.version, named }
}
