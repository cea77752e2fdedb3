/**
 * Enrols, removes and looks up users' devices, after callers have verified the signatures. A user's consent applies to
 * its devices. A device may vouch for devices of its user, such as its sessions; these may not vouch for others.
 */
import { arrayLiteral, byteaText, type Database, DatabaseError } from '@sealpost/pg'
import { columnNames, device, execute, formerIdentity, member, senderMark, session } from '@sealpost/schema'
import type { MemberRef, MeshId, Millis, PeerKey } from '@sealpost/std'
import { type SQL, sql } from 'drizzle-orm'
import { isRecoverySql, type MemberBinding } from './key-bindings.ts'
import {
  dependentsSql,
  hasRoomSql,
  isTakenSql,
  MEMBERS_MAX,
  nameKeysOf,
  type RevokedPeer,
  voucherKeySql,
} from './membership.ts'

export interface VerifiedDeviceInvite {
  readonly meshId: MeshId
  /** The key that vouches: of the user or of one of its devices. */
  readonly voucher: PeerKey
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
  | { readonly status: 'enrolled'; readonly name: string; readonly user: PeerKey }
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

/** SQL: until when a device `d` could join with its invite, at its place in the statement (`readDevice`). */
const joinBySql: SQL = sql.raw(
  `to_timestamp(('x' || encode(substring(d.statement from 89 + get_byte(d.statement, 87) for 8), 'hex'))::bit(64)::bigint / 1000.0)`,
)

/**
 * Uses the invite and enrols the device in one statement, under its user's name and its label. A repeated call returns
 * the same enrolment. An invite with the label of an enrolled device renews its voucher. Concurrent calls may exceed a
 * limit by one.
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
  const [row] = await execute<{ status: DeviceOutcome['status']; name: string; user: PeerKey }>(
    db,
    sql`
      with known as (
        select m.revoked_at is not null as is_revoked, m.name, m.person,
          exists (select from ${device} d where d.mesh_id = ${mesh} and d.peer_no = m.peer_no
            and d.invite_key = ${inviteKey}) as is_by_this, m.peer_no, m.vouched_until
        from ${member} m where m.mesh_id = ${mesh} and m.peer_key = ${key}
        union all
        select true, null, null, false, null, null from ${formerIdentity} f where f.mesh_id = ${mesh} and f.peer_key = ${key}
      ), owner as (
        select o.peer_no, u.name || '/' || ${label} as name,
          case when u.name = o.name and o.skeleton is not null then o.skeleton else name_skeleton(u.name) end
            || '/' || ${keys.skeleton}::text as skeleton,
          case when u.name = o.name and o.folded is not null then o.folded else lower(u.name) end
            || '/' || ${keys.folded}::text as folded,
          least(m.vouched_until, ${instantOf(claim.notAfterMs)}) as vouched_until
        from ${member} m join ${member} o on o.mesh_id = m.mesh_id and o.peer_no = coalesce(m.person, m.peer_no)
        cross join lateral (
          -- A long name is cut, but not the ASCII form of another name.
          select left(case when o.name is null or o.name like 'xn--%' and length(o.name) > 63 - length(${label})
            then left(encode(o.peer_key, 'hex'), 8) else o.name end, 63 - length(${label})) as name) as u
        where m.mesh_id = ${mesh} and m.peer_key = ${byteaText(claim.voucher)}::bytea
          and m.revoked_at is null and o.revoked_at is null
          and (m.person is null or (m.vouched_until > clock_timestamp() and not exists (
            select from ${device} d join ${member} v on v.mesh_id = d.mesh_id and v.peer_key = ${voucherKeySql}
            where d.mesh_id = ${mesh} and d.peer_no = m.peer_no and v.person is not null)))
          and ${instantOf(claim.joinByMs)} > clock_timestamp() and ${instantOf(claim.notAfterMs)} > clock_timestamp()
          and not exists (select from ${device} d
            where d.mesh_id = ${mesh} and d.person = o.peer_no and d.invite_key = ${inviteKey})
      ), renewable as (
        -- A device can't join with the replaced invite: the invite or its voucher has expired.
        select known.peer_no, known.vouched_until > clock_timestamp() as is_counted from known
        join owner on owner.peer_no = known.person and owner.name = known.name
          and owner.vouched_until > known.vouched_until
        join ${device} d on d.mesh_id = ${mesh} and d.peer_no = known.peer_no and d.removal is null
        where not known.is_revoked and not known.is_by_this
          and (known.vouched_until <= clock_timestamp() or ${joinBySql} <= clock_timestamp())
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
          owner.peer_no, owner.vouched_until
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
      ), renewed as (
        update ${member} set ${columnNames(member.vouchedUntil)} = owner.vouched_until
        from renewable, owner where ${member.meshId} = ${mesh} and ${member.peerNo} = renewable.peer_no
          and (renewable.is_counted or exists (select from fitting))
        returning ${member.peerNo} as peer_no
      ), vouched_again as (
        update ${device} set ${columnNames(device.inviteKey)} = ${inviteKey},
          ${columnNames(device.statement)} = ${byteaText(claim.statement)}::bytea
        from renewed where ${device.meshId} = ${mesh} and ${device.peerNo} = renewed.peer_no
      )
      select coalesce((select name from added), (select name from known), '') as name, (
          select encode(u.peer_key, 'hex') from ${member} u where u.mesh_id = ${mesh}
            and u.peer_no = coalesce((select person from added), (select person from known))) as user, case
        when (select is_revoked from known) then 'revoked'
        when (select is_by_this from known) then 'enrolled'
        when exists (select from added) or exists (select from renewed) then 'enrolled'
        when not exists (select from owner) then 'invite_refused'
        when exists (select from known) and not exists (select from renewable) then 'already_member'
        when not exists (select from fitting) then 'too_many_devices'
        when not (select is_there from room) then 'too_many_members'
        else 'name_taken' end as status`,
  )
  const { status, name, user } = row!
  return status === 'enrolled' ? { status, name, user } : { status }
}

export interface RemovedDevices {
  readonly user: PeerKey
  /** The device and those that it has vouched for. */
  readonly ended: readonly RevokedPeer[]
}

/**
 * Revokes a user's device, on behalf of the user or of the device that vouched for it, after the caller has verified
 * the signature. Frees its name, and revokes the devices that it has vouched for.
 * @returns null if the key was never a device of this user, or this device has not vouched for it
 */
export async function removeDevice(
  db: Database,
  { meshId, peer }: MemberRef,
  { device: key, removal }: { device: PeerKey; removal: Uint8Array },
): Promise<RemovedDevices | null> {
  const mesh = sql`${meshId}::uuid`
  const rows = await execute<RevokedPeer & { user: PeerKey }>(
    db,
    sql`
      with named as (
        select m.peer_no, m.peer_key, m.person from ${member} m
        join ${device} d on d.mesh_id = m.mesh_id and d.peer_no = m.peer_no
        join ${member} r on r.mesh_id = m.mesh_id and r.peer_no = ${peer}::int
        where m.mesh_id = ${mesh} and m.peer_key = ${byteaText(key)}::bytea
          and (m.person = r.peer_no or (m.person = r.person and ${voucherKeySql} = r.peer_key))
      ), ended as (
        update ${member} set ${columnNames(member.revokedAt)} = coalesce(${member.revokedAt}, clock_timestamp()),
          ${columnNames(member.name)} = null
        where ${member.meshId} = ${mesh}
          and ${member.peerNo} in (select peer_no from named union all ${dependentsSql(mesh)})
        returning ${member.peerNo} as peer_no, ${member.peerKey} as peer_key
      ), removed as (
        update ${device} set ${columnNames(device.removal)} = coalesce(${device.removal}, ${byteaText(removal)}::bytea),
          ${columnNames(device.removedAt)} = coalesce(${device.removedAt}, clock_timestamp())
        from named where ${device.meshId} = ${mesh} and ${device.peerNo} = named.peer_no
      )
      select ended.peer_no as peer, encode(ended.peer_key, 'hex') as "peerKey", encode(u.peer_key, 'hex') as user
      from ended join named on true join ${member} u on u.mesh_id = ${mesh} and u.peer_no = named.person`,
  )
  const [first] = rows
  return first ? { user: first.user, ended: rows.map(({ peer, peerKey }) => ({ peer, peerKey })) } : null
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
      -- Enrolment order: a device precedes those that it has vouched for.
      (select asked.n, 'statements' as kind, d.statement as bytes
      from asked join ${device} d on d.mesh_id = asked.mesh_id and d.person = asked.person and d.removal is null
      join ${member} m on m.mesh_id = asked.mesh_id and m.peer_no = d.peer_no
      where m.revoked_at is null and m.vouched_until > clock_timestamp()
      order by d.peer_no)
      union all
      select asked.n, 'removals', r.removal from asked cross join lateral (
        select d.removal from ${device} d
        where d.mesh_id = asked.mesh_id and d.person = asked.person and d.removal is not null
        order by d.removed_at desc limit ${REMOVALS_MAX}) as r
      union all
      select asked.n, 'successions', s.statement from asked cross join lateral (
        select f.statement from ${formerIdentity} f where f.mesh_id = asked.mesh_id and f.peer_no = asked.person
          and not ${isRecoverySql}
        order by f.retired_at desc limit ${SUCCESSIONS_MAX}) as s`,
  )
  const records = asked.map(() => ({ statements: [], removals: [], successions: [] }) as Records)
  for (const { n, kind, bytes } of rows) records[n - 1]![kind].push(bytes)
  return records
}

type Records = Record<keyof UserRecords, Uint8Array[]>
