/** Key bindings: the current one is part of the member's row, former ones have rows of their own. */
import { byteaText, type Database } from '@sealpost/pg'
import { columnNames, execute, formerBinding, member } from '@sealpost/schema'
import type { MemberRef, MeshId, Millis, PeerKey } from '@sealpost/std'
import { sql } from 'drizzle-orm'

/** A new member: its ed25519 key and the box key that it signed. Keys and signature as bytes or hex. */
export interface MemberBinding {
  peerKey: PeerKey | Uint8Array
  boxKey: string | Uint8Array
  boxEpoch: number
  notAfterMs: Millis
  signature: string | Uint8Array
  /** Passes `isChosenName`; unique in the mesh, ignoring case. Default: none. */
  name?: string
  /** Default `member`. An admin creates invites and revokes members. */
  role?: 'member' | 'admin'
}

export interface BindingRecord {
  readonly boxKey: Uint8Array
  readonly boxEpoch: number
  readonly notAfterMs: Millis
  readonly signature: Uint8Array
}

/** The largest `integer` in Postgres. */
export const BOX_EPOCH_MAX = 2 ** 31 - 1
/** Messages sealed under a former key are delivered or expired by then. */
const FORMER_DAYS = 60
/** The number of former bindings that are kept. */
const FORMER_MAX = 16

/**
 * Replaces the current binding, which becomes a former one; repeating the call has no effect. The caller has checked
 * the signature.
 * @returns `stale_epoch` if the binding is not newer, or the member is revoked
 * @throws DatabaseError
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
        where ${member.meshId} = ${mesh} and ${member.peerNo} = ${peerNo} and f.box_epoch < ${boxEpoch}
        returning f.box_epoch, f.box_key, f.binding_not_after_ms, f.binding_signature
      ), kept as (
        insert into ${formerBinding} (${columns}) select ${mesh}, ${peerNo}, changed.* from changed
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
export interface SignedBinding extends BindingRecord {
  readonly peer: PeerKey
}

/** Returns the current binding, then former ones from new to old; nothing for a revoked member or a stranger. */
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
