/**
 * Rotation of identity keys. The member keeps its number, role, name, consent, devices and mail; its tokens are
 * deleted.
 */
import { arrayLiteral, byteaText, type Database, DatabaseError } from '@sealpost/pg'
import { accessToken, columnNames, execute, formerBinding, formerIdentity, member } from '@sealpost/schema'
import type { MemberRef, MeshId, PeerKey } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import type { MemberBinding } from './key-bindings.ts'

/** The caller has checked both signatures and that of the binding. */
export interface VerifiedIdentityRotation {
  readonly former: PeerKey
  readonly statement: Uint8Array
  /** The binding of the new key. */
  readonly binding: MemberBinding & { readonly peerKey: PeerKey }
}

/** `stale`: the key is no longer the member's, or the box epoch is not higher. */
export type IdentityRotationOutcome = 'done' | 'key_taken' | 'stale'

const UNIQUE_VIOLATION = '23505'

/** Rotates the key in one statement; repeating the call has no effect. @throws DatabaseError */
export async function rotateIdentity(
  db: Database,
  owner: MemberRef,
  record: VerifiedIdentityRotation,
): Promise<IdentityRotationOutcome> {
  try {
    return await rotate(db, owner, record)
  } catch (error) {
    // A concurrent enrolment took the key.
    if (error instanceof DatabaseError && error.sqlstate === UNIQUE_VIOLATION) return 'key_taken'
    throw error
  }
}

async function rotate(
  db: Database,
  { meshId, peer }: MemberRef,
  { former, statement, binding }: VerifiedIdentityRotation,
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
          and m.box_epoch < ${binding.boxEpoch}::int and not exists (select from taken)
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

/** How long mail to a former key still reaches its successor. */
const FOLLOWED_DAYS = 60

/** Returns the current key for each of the keys that was rotated. @throws DatabaseError */
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
        and f.retired_at > clock_timestamp() - make_interval(days => ${FOLLOWED_DAYS})
      join ${member} m on m.mesh_id = f.mesh_id and m.peer_no = f.peer_no and m.revoked_at is null`,
  )
  return new Map(rows.map(({ former, successor }) => [former, successor]))
}
