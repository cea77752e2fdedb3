/**
 * How a mesh grows and shrinks by its own admins: enrolment by an invite, revocation, and the list of members. Each is
 * one statement, and saying one again changes nothing. Who may do it is decided here, by the rows of this very moment;
 * signatures were checked before.
 */
import type { InviteId, MeshId, Millis, PeerKey, PeerNo } from '@sealpost/std'
import { type SQL, sql } from 'drizzle-orm'
import type { MemberBinding } from './admin.ts'
import { arrayLiteral, byteaText } from './column-types.ts'
import type { Database } from './connect.ts'
import { DatabaseError } from './database-error.ts'
import { execute, names } from './drizzle-run.ts'
import { device, formerIdentity, invite, member, senderMark, session } from './schema.ts'

/** What an invite says, once its signature was checked. */
export interface InviteClaim {
  readonly meshId: MeshId
  readonly inviteId: InviteId
  /** BLAKE2b-256 of the whole invite. */
  readonly hash: Uint8Array
  readonly issuer: PeerKey
  readonly usesMax: number
  readonly notAfterMs: Millis
  readonly role: 'member' | 'admin'
}

export interface Newcomer extends MemberBinding {
  readonly peerKey: PeerKey
  readonly name: string
}

/**
 * `invite_refused` is one answer for a mesh that does not exist, an issuer that is no admin of it or was revoked, and an
 * invite that has expired, was revoked, is used up, or is another one than was known by this id.
 */
export type EnrolOutcome =
  | { readonly status: 'enrolled'; readonly name: string }
  | { readonly status: 'invite_refused' | 'already_member' | 'name_taken' | 'revoked' | 'too_many_members' }

/**
 * Uses the invite once and enrols the newcomer, with its session and its sender mark: all or nothing. Of any number at
 * once it lets in as many as the invite has uses. Whoever was let in by this very invite is told so again, under the
 * name it has. A mesh has at most `membersMax` members, devices included; of two at the same moment past it both may fit.
 * @throws DatabaseError
 */
export async function enrolByInvite(
  db: Database,
  claim: InviteClaim,
  newcomer: Newcomer,
  membersMax = MEMBERS_MAX,
): Promise<EnrolOutcome> {
  try {
    return await enrol(db, claim, newcomer, membersMax)
  } catch (error) {
    // Another enrolment of the same key or name was faster. Now its rows are there to be seen.
    if (error instanceof DatabaseError && error.sqlstate === UNIQUE_VIOLATION)
      return enrol(db, claim, newcomer, membersMax)
    throw error
  }
}

const UNIQUE_VIOLATION = '23505'
/** Without a limit. */
export const MEMBERS_MAX = 2 ** 31 - 1

/** Whether one more member fits into the mesh. It reads no more rows than there may be. */
export const hasRoomFor = (meshId: SQL, membersMax: number): SQL => sql`
  (${membersMax}::int > (select count(*) from (select from ${member} m
    where m.mesh_id = ${meshId} and m.revoked_at is null and not m.is_pool limit ${membersMax}::int) as present))`

async function enrol(db: Database, claim: InviteClaim, newcomer: Newcomer, membersMax: number): Promise<EnrolOutcome> {
  const meshId = sql`${claim.meshId}::uuid`
  const inviteId = sql`${claim.inviteId}::uuid`
  const hash = sql`${byteaText(claim.hash)}::bytea`
  const notAfter = sql`to_timestamp(${claim.notAfterMs}::float8 / 1000)`
  const usesMax = sql`${claim.usesMax}::int`
  const peerKey = sql`${byteaText(newcomer.peerKey)}::bytea`
  const name = sql`${newcomer.name}::text`
  const memberColumns = names(
    ...[member.meshId, member.peerKey, member.boxKey, member.boxEpoch, member.bindingNotAfterMs],
    ...[member.bindingSignature, member.name, member.role, member.inviteId],
  )
  const inviteColumns = names(
    ...[invite.meshId, invite.inviteId, invite.hash, invite.issuer, invite.uses, invite.usesMax, invite.notAfter],
  )
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
        -- Of the operator's: no member issued it, and this very invite was written down beforehand.
        select null from ${invite}
        where ${invite.meshId} = ${meshId} and ${invite.inviteId} = ${inviteId} and ${invite.issuer} is null
          and ${invite.hash} = ${hash} and ${invite.revokedAt} is null and ${invite.uses} < ${usesMax}
          and ${notAfter} > clock_timestamp()
      ), namesake as (
        select from ${member} where ${member.meshId} = ${meshId} and lower(${member.name}) = lower(${name})
      ), room as materialized (
        select ${hasRoomFor(meshId, membersMax)} as is_there
      ), used as (
        insert into ${invite} (${inviteColumns})
        select ${meshId}, ${inviteId}, ${hash}, issuer, 1, ${usesMax}, ${notAfter} from good
        where not exists (select from known) and not exists (select from namesake) and (select is_there from room)
        -- Asked once more, because whoever waited for another enrolment saw the row as it was before.
        on conflict (${names(invite.meshId, invite.inviteId)}) do update set ${names(invite.uses)} = ${invite.uses} + 1
        where ${invite.revokedAt} is null and ${invite.hash} = ${hash} and ${invite.uses} < ${usesMax}
        returning 1
      ), added as (
        insert into ${member} (${memberColumns})
        select ${meshId}, ${peerKey}, ${byteaText(newcomer.boxKey)}::bytea, ${newcomer.boxEpoch}::int,
          ${newcomer.notAfterMs}::bigint, ${byteaText(newcomer.signature)}::bytea, ${name}, ${claim.role}::text, ${inviteId}
        from used returning ${names(member.peerNo)} as peer_no
      ), opened as (
        insert into ${session} (${names(session.meshId, session.peerNo)}) select ${meshId}, peer_no from added
      ), marked as (
        insert into ${senderMark} (${names(senderMark.meshId, senderMark.sender)}) select ${meshId}, peer_no from added
      )
      select coalesce((select name from known), ${name}) as name, case
        when (select is_revoked from known) then 'revoked'
        when (select is_by_this from known) then 'enrolled'
        when exists (select from added) then 'enrolled'
        when not exists (select from good) then 'invite_refused'
        when exists (select from known) then 'already_member'
        when exists (select from namesake) then 'name_taken'
        when not (select is_there from room) then 'too_many_members'
        else 'invite_refused' end as status`,
  )
  const { status, name: enrolledName } = row!
  return status === 'enrolled' ? { status, name: enrolledName } : { status }
}

export interface ListedMember {
  readonly peerKey: PeerKey
  /** Empty for none. */
  readonly name: string
  readonly role: 'member' | 'admin'
}

/** Those not revoked whose keys come after `after`, by their keys, at most `limit`. */
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

/** One who is, or was, a member. */
export interface RevokedMember {
  readonly peerKey: PeerKey
  readonly peer: PeerNo
}

/**
 * Ends memberships, a person's with those of its devices, and invites, at the word of an admin; or of a member its own: it
 * leaves. Neither can be taken back. An invite need not have been used: all that is known of it then is that it was revoked.
 * @returns those of the keys that are of members, or were before; null when the asker may not: nothing was done
 */
export async function revokeFor(
  db: Database,
  { meshId, peer }: { meshId: MeshId; peer: PeerNo },
  { members, invites }: { members: readonly PeerKey[]; invites: readonly InviteId[] },
): Promise<RevokedMember[] | null> {
  const keys = sql`${arrayLiteral(members.map(byteaText))}::bytea[]`
  const ids = sql`${arrayLiteral(invites)}::uuid[]`
  const rows = await execute<{ isAllowed: boolean; peer: PeerNo | null; peerKey: PeerKey }>(
    db,
    sql`
      with asker as (
        select from ${member} where ${member.meshId} = ${meshId}::uuid and ${member.peerNo} = ${peer}::int
          and ${member.revokedAt} is null and (${member.role} = 'admin'
            or (cardinality(${keys}) > 0 and ${member.peerKey} = all (${keys}) and cardinality(${ids}) = 0))
      ), named as (
        select m.peer_no from ${member} m where m.mesh_id = ${meshId}::uuid and m.peer_key = any (${keys})
          and not m.is_pool
      ), ended as (
        update ${member} set ${names(member.revokedAt)} = coalesce(${member.revokedAt}, clock_timestamp())
        where ${member.meshId} = ${meshId}::uuid and exists (select from asker) and (
          ${member.peerNo} in (select peer_no from named) or ${member.peerNo} in (
            select d.peer_no from ${device} d join named on named.peer_no = d.person where d.mesh_id = ${meshId}::uuid))
        returning ${member.peerNo} as peer_no, ${member.peerKey} as peer_key
      ), barred as (
        insert into ${invite} (${names(invite.meshId, invite.inviteId, invite.revokedAt)})
        select distinct ${meshId}::uuid, id, clock_timestamp() from unnest(${ids}) as i (id)
        where exists (select from asker)
        on conflict (${names(invite.meshId, invite.inviteId)})
        do update set ${names(invite.revokedAt)} = coalesce(${invite.revokedAt}, excluded.${names(invite.revokedAt)})
      )
      select is_allowed as "isAllowed", peer_no as peer, encode(peer_key, 'hex') as "peerKey"
      from (select exists (select from asker) as is_allowed) as asked left join ended on true`,
  )
  if (!rows[0]!.isAllowed) return null
  return rows.flatMap(({ peer, peerKey }) => (peer === null ? [] : [{ peer, peerKey }]))
}
