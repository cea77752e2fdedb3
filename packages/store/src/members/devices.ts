/**
 * Enrols, removes and looks up users' devices, after callers have verified the signatures. A user's consent applies to
 * its devices.
 */
import { arrayLiteral, byteaText, type Database, DatabaseError } from '@sealpost/pg'
import { columnNames, device, execute, formerIdentity, member, senderMark, session } from '@sealpost/schema'
import type { MemberRef, MeshId, Millis, PeerKey, PeerNo } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import type { MemberBinding } from './key-bindings.ts'
import { hasRoomSql, isTakenSql, MEMBERS_MAX, nameKeysOf, type RevokedPeer } from './membership.ts'

export interface VerifiedDeviceInvite {
  readonly meshId: MeshId
  readonly person: PeerKey
  readonly inviteKey: PeerKey
  readonly label: string
  readonly joinByMs: Millis
  readonly notAfterMs: Millis
  readonly statement: Uint8Array
}

export interface DeviceBinding extends MemberBinding {
  readonly peerKey: PeerKey
}

/** `invite_refused`: the mesh or user does not exist, or the invite has expired or was used. */
export type DeviceOutcome =
  | { readonly status: 'enrolled'; readonly name: string }
  | {
      readonly status:
        | 'invite_refused'
        | 'already_member'
        | 'name_taken'
        | 'revoked'
        | 'too_many_devices'
        | 'too_many_members'
    }

export interface DeviceLimits {
  readonly devicesMax: number
  readonly membersMax?: number
}

const UNIQUE_VIOLATION = '23505'

/**
 * Uses the invite and enrols the device in one statement, under its user's name and its label. A repeated call returns
 * the same enrolment. Concurrent calls may exceed a limit by one.
 */
export async function enrolDevice(
  db: Database,
  claim: VerifiedDeviceInvite,
  candidate: DeviceBinding,
  limits: DeviceLimits,
): Promise<DeviceOutcome> {
  try {
    return await enrol(db, claim, candidate, limits)
  } catch (error) {
    // A concurrent enrolment with this invite or name won the race, and a second attempt sees its rows.
    if (error instanceof DatabaseError && error.sqlstate === UNIQUE_VIOLATION)
      return enrol(db, claim, candidate, limits)
    throw error
  }
}

async function enrol(
  db: Database,
  claim: VerifiedDeviceInvite,
  candidate: DeviceBinding,
  { devicesMax, membersMax = MEMBERS_MAX }: DeviceLimits,
): Promise<DeviceOutcome> {
  const mesh = sql`${claim.meshId}::uuid`
  const key = sql`${byteaText(candidate.peerKey)}::bytea`
  const inviteKey = sql`${byteaText(claim.inviteKey)}::bytea`
  const label = sql`${claim.label}::text`
  const keys = nameKeysOf(claim.label)
  const instantOf = (ms: Millis) => sql`to_timestamp(${ms}::float8 / 1000)`
  const memberColumns = columnNames(
    ...[member.meshId, member.peerKey, member.boxKey, member.boxEpoch, member.bindingNotAfterMs],
    ...[member.bindingSignature, member.name, member.skeleton, member.folded, member.person, member.vouchedUntil],
  )
  const deviceColumns = columnNames(device.meshId, device.peerNo, device.person, device.inviteKey, device.statement)
  const [row] = await execute<{ status: DeviceOutcome['status']; name: string }>(
    db,
    sql`
      with known as (
        select m.revoked_at is not null as is_revoked, m.name,
          exists (select from ${device} d where d.mesh_id = ${mesh} and d.peer_no = m.peer_no
            and d.invite_key = ${inviteKey}) as is_by_this
        from ${member} m where m.mesh_id = ${mesh} and m.peer_key = ${key}
        union all
        select true, null, false from ${formerIdentity} f where f.mesh_id = ${mesh} and f.peer_key = ${key}
      ), owner as (
        select m.peer_no, u.name || '/' || ${label} as name,
          case when u.name = m.name and m.skeleton is not null then m.skeleton else name_skeleton(u.name) end
            || '/' || ${keys.skeleton}::text as skeleton,
          case when u.name = m.name and m.folded is not null then m.folded else lower(u.name) end
            || '/' || ${keys.folded}::text as folded
        from ${member} m cross join lateral (
          -- A long name is cut, but not the ASCII form of another name.
          select left(case when m.name is null or m.name like 'xn--%' and length(m.name) > 63 - length(${label})
            then left(encode(m.peer_key, 'hex'), 8) else m.name end, 63 - length(${label})) as name) as u
        where m.mesh_id = ${mesh} and m.peer_key = ${byteaText(claim.person)}::bytea
          and m.revoked_at is null and m.person is null
          and ${instantOf(claim.joinByMs)} > clock_timestamp() and ${instantOf(claim.notAfterMs)} > clock_timestamp()
          and not exists (select from ${device} d
            where d.mesh_id = ${mesh} and d.person = m.peer_no and d.invite_key = ${inviteKey})
      ), fitting as (
        select from owner where ${devicesMax}::int > (
          select count(*) from ${device} d join ${member} m on m.mesh_id = d.mesh_id and m.peer_no = d.peer_no
          where d.mesh_id = ${mesh} and d.person = owner.peer_no
            and m.revoked_at is null and m.vouched_until > clock_timestamp())
      ), room as materialized (
        select ${hasRoomSql(mesh, membersMax)} as is_there
      ), namesake as materialized (
        select ${isTakenSql(mesh, { name: sql`owner.name`, skeleton: sql`owner.skeleton`, folded: sql`owner.folded` })}
          as is_there from owner
      ), added as (
        insert into ${member} (${memberColumns})
        select ${mesh}, ${key}, ${byteaText(candidate.boxKey)}::bytea, ${candidate.boxEpoch}::int,
          ${candidate.notAfterMs}::bigint, ${byteaText(candidate.signature)}::bytea, owner.name, owner.skeleton, owner.folded,
          owner.peer_no,
          ${instantOf(claim.notAfterMs)}
        from owner where exists (select from fitting) and (select is_there from room) and not exists (select from known)
          and not (select is_there from namesake)
        returning ${columnNames(member.peerNo)} as peer_no, ${columnNames(member.person)} as person, ${columnNames(member.name)} as name
      ), opened as (
        insert into ${session} (${columnNames(session.meshId, session.peerNo)}) select ${mesh}, peer_no from added
      ), marked as (
        insert into ${senderMark} (${columnNames(senderMark.meshId, senderMark.sender)}) select ${mesh}, peer_no from added
      ), vouched as (
        insert into ${device} (${deviceColumns})
        select ${mesh}, peer_no, person, ${inviteKey}, ${byteaText(claim.statement)}::bytea from added
      )
      select coalesce((select name from added), (select name from known), '') as name, case
        when (select is_revoked from known) then 'revoked'
        when (select is_by_this from known) then 'enrolled'
        when exists (select from added) then 'enrolled'
        when not exists (select from owner) then 'invite_refused'
        when exists (select from known) then 'already_member'
        when not exists (select from fitting) then 'too_many_devices'
        when not (select is_there from room) then 'too_many_members'
        else 'name_taken' end as status`,
  )
  const { status, name } = row!
  return status === 'enrolled' ? { status, name } : { status }
}

/**
 * Revokes a user's device, after the caller has verified the signature, and frees its name.
 * @returns null if the key was never a device of this user
 */
export async function removeDevice(
  db: Database,
  { meshId, peer }: MemberRef,
  { device: key, removal }: { device: PeerKey; removal: Uint8Array },
): Promise<RevokedPeer | null> {
  const mesh = sql`${meshId}::uuid`
  const [row] = await execute<{ peer: PeerNo }>(
    db,
    sql`
      with ended as (
        update ${member} set ${columnNames(member.revokedAt)} = coalesce(${member.revokedAt}, clock_timestamp()),
          ${columnNames(member.name)} = null
        where ${member.meshId} = ${mesh} and ${member.peerKey} = ${byteaText(key)}::bytea
          and ${member.person} = ${peer}::int
        returning ${columnNames(member.peerNo)} as peer_no
      ), removed as (
        update ${device} set ${columnNames(device.removal)} = coalesce(${device.removal}, ${byteaText(removal)}::bytea),
          ${columnNames(device.removedAt)} = coalesce(${device.removedAt}, clock_timestamp())
        from ended where ${device.meshId} = ${mesh} and ${device.peerNo} = ended.peer_no
      )
      select peer_no as peer from ended`,
  )
  return row ? { peer: row.peer, peerKey: key } : null
}

/** Signed statements about a user: its devices, its removed devices, and its key rotations. */
export interface UserRecords {
  readonly statements: readonly Uint8Array[]
  readonly removals: readonly Uint8Array[]
  readonly successions: readonly Uint8Array[]
}

const REMOVALS_MAX = 16
const SUCCESSIONS_MAX = 16

/** A user's current or former key, or the key of a device. */
export interface UserLookup {
  readonly meshId: MeshId
  readonly peerKey: PeerKey
}

export async function findUserRecords(db: Database, asked: readonly UserLookup[]): Promise<UserRecords[]> {
  const meshes = sql`${arrayLiteral(asked.map(({ meshId }) => meshId))}::uuid[]`
  const keys = sql`${arrayLiteral(asked.map(({ peerKey }) => byteaText(peerKey)))}::bytea[]`
  const rows = await execute<{ n: number; kind: keyof UserRecords; bytes: Uint8Array }>(
    db,
    sql`
      with asked as materialized (
        select k.n::int, k.mesh_id, p.person from unnest(${meshes}, ${keys}) with ordinality as k (mesh_id, peer_key, n)
        cross join lateral (
          select coalesce(m.person, m.peer_no) as person from ${member} m
          where m.mesh_id = k.mesh_id and m.peer_key = k.peer_key
          union
          select f.peer_no from ${formerIdentity} f where f.mesh_id = k.mesh_id and f.peer_key = k.peer_key
        ) as p
      )
      select asked.n, 'statements' as kind, d.statement as bytes
      from asked join ${device} d on d.mesh_id = asked.mesh_id and d.person = asked.person and d.removal is null
      join ${member} m on m.mesh_id = asked.mesh_id and m.peer_no = d.peer_no
      where m.revoked_at is null and m.vouched_until > clock_timestamp()
      union all
      select asked.n, 'removals', r.removal from asked cross join lateral (
        select d.removal from ${device} d
        where d.mesh_id = asked.mesh_id and d.person = asked.person and d.removal is not null
        order by d.removed_at desc limit ${REMOVALS_MAX}) as r
      union all
      select asked.n, 'successions', s.statement from asked cross join lateral (
        select f.statement from ${formerIdentity} f where f.mesh_id = asked.mesh_id and f.peer_no = asked.person
        order by f.retired_at desc limit ${SUCCESSIONS_MAX}) as s`,
  )
  const records = asked.map(() => ({ statements: [], removals: [], successions: [] }) as Records)
  for (const { n, kind, bytes } of rows) records[n - 1]![kind].push(bytes)
  return records
}

type Records = Record<keyof UserRecords, Uint8Array[]>
