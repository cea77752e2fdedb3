/** A peer's box keys one after the other: its current binding stands with the member, former ones beside it. */
import type { MeshId, Millis, PeerKey } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import { byteaText } from './column-types.ts'
import type { Database } from './connect.ts'
import type { Owner } from './consent.ts'
import { execute, names } from './drizzle-run.ts'
import { formerBinding, member } from './schema.ts'

export interface BindingRecord {
  readonly boxKey: Uint8Array
  readonly boxEpoch: number
  readonly notAfterMs: Millis
  readonly signature: Uint8Array
}

/** An `integer` of the database holds no more. */
export const BOX_EPOCH_MAX = 2 ** 31 - 1
/** What was sealed under a former key has been delivered or is over by then, whatever times to live an operator allows. */
const FORMER_DAYS = 60
/** Of one that rotates without end only the last ones are kept. */
const FORMER_MAX = 16

/**
 * Puts a binding, whose signature was checked, in the place of the current one, which is kept beside it. The same one
 * said again is done already.
 * @returns `stale_epoch` for one that is not newer, and for a member that was revoked
 * @throws DatabaseError
 */
export async function replaceBinding(
  db: Database,
  { meshId, peer }: Owner,
  binding: BindingRecord,
): Promise<'done' | 'stale_epoch'> {
  const mesh = sql`${meshId}::uuid`
  const peerNo = sql`${peer}::int`
  const boxKey = sql`${byteaText(binding.boxKey)}::bytea`
  const boxEpoch = sql`${binding.boxEpoch}::int`
  const columns = names(
    ...[formerBinding.meshId, formerBinding.peerNo, formerBinding.boxEpoch, formerBinding.boxKey],
    ...[formerBinding.bindingNotAfterMs, formerBinding.bindingSignature],
  )
  const [row] = await execute<{ outcome: 'done' | 'stale_epoch' }>(
    db,
    sql`
      with former as materialized (
        select m.* from ${member} m where m.mesh_id = ${mesh} and m.peer_no = ${peerNo} and m.revoked_at is null for update
      ), changed as (
        update ${member} set ${names(member.boxKey)} = ${boxKey}, ${names(member.boxEpoch)} = ${boxEpoch},
          ${names(member.bindingNotAfterMs)} = ${binding.notAfterMs}::bigint,
          ${names(member.bindingSignature)} = ${byteaText(binding.signature)}::bytea
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

/** A binding and the identity key that signed it, which another one may have followed since. */
export interface SignedBinding extends BindingRecord {
  readonly peer: PeerKey
}

/** The current one first, then former ones, newest first. None of who is no member, or was revoked. */
export function findHistory(db: Database, meshId: MeshId, peerKey: PeerKey): Promise<SignedBinding[]> {
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
