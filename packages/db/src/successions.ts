/**
 * A member turns to another identity key. The member stays: its number, role, name, consent, devices, and the mail that
 * waits for it or that it has sent. Its tokens end.
 */
import type { MeshId, PeerKey } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import type { MemberBinding } from './admin.ts'
import { arrayLiteral, byteaText } from './column-types.ts'
import type { Database } from './connect.ts'
import type { Owner } from './consent.ts'
import { DatabaseError } from './database-error.ts'
import { execute, names } from './drizzle-run.ts'
import { accessToken, formerBinding, formerIdentity, member } from './schema.ts'

/** Both signatures, and that of the binding, were checked. */
export interface SuccessionRecord {
  readonly former: PeerKey
  readonly statement: Uint8Array
  /** Of the new identity. */
  readonly binding: MemberBinding & { readonly peerKey: PeerKey }
}

/** `stale`: the key is not the member's any more, or the box epoch is not higher. */
export type SuccessionOutcome = 'done' | 'key_taken' | 'stale'

const UNIQUE_VIOLATION = '23505'

/** All or nothing. Said again it is done already. @throws DatabaseError */
export async function succeedIdentity(
  db: Database,
  owner: Owner,
  record: SuccessionRecord,
): Promise<SuccessionOutcome> {
  try {
    return await succeed(db, owner, record)
  } catch (error) {
    // Enrolled at the same moment by somebody else. Now it is there to be seen.
    if (error instanceof DatabaseError && error.sqlstate === UNIQUE_VIOLATION) return 'key_taken'
    throw error
  }
}

async function succeed(
  db: Database,
  { meshId, peer }: Owner,
  { former, statement, binding }: SuccessionRecord,
): Promise<SuccessionOutcome> {
  const mesh = sql`${meshId}::uuid`
  const peerNo = sql`${peer}::int`
  const oldKey = sql`${byteaText(former)}::bytea`
  const newKey = sql`${byteaText(binding.peerKey)}::bytea`
  const bindingColumns = names(
    ...[formerBinding.meshId, formerBinding.peerNo, formerBinding.peerKey, formerBinding.boxEpoch],
    ...[formerBinding.boxKey, formerBinding.bindingNotAfterMs, formerBinding.bindingSignature],
  )
  const [row] = await execute<{ outcome: SuccessionOutcome }>(
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
      ), turned as (
        update ${member} set ${names(member.peerKey)} = ${newKey},
          ${names(member.boxKey)} = ${byteaText(binding.boxKey)}::bytea, ${names(member.boxEpoch)} = ${binding.boxEpoch}::int,
          ${names(member.bindingNotAfterMs)} = ${binding.notAfterMs}::bigint,
          ${names(member.bindingSignature)} = ${byteaText(binding.signature)}::bytea
        from old where ${member.meshId} = ${mesh} and ${member.peerNo} = ${peerNo}
        returning old.box_epoch, old.box_key, old.binding_not_after_ms, old.binding_signature
      ), noted as (
        insert into ${formerIdentity} (${names(formerIdentity.meshId, formerIdentity.peerKey, formerIdentity.peerNo, formerIdentity.statement)})
        select ${mesh}, ${oldKey}, ${peerNo}, ${byteaText(statement)}::bytea from turned
      ), signed as (
        update ${formerBinding} set ${names(formerBinding.peerKey)} = ${oldKey}
        where ${formerBinding.meshId} = ${mesh} and ${formerBinding.peerNo} = ${peerNo}
          and ${formerBinding.peerKey} is null and exists (select from turned)
      ), kept as (
        insert into ${formerBinding} (${bindingColumns}) select ${mesh}, ${peerNo}, ${oldKey}, turned.* from turned
      ), closed as (
        delete from ${accessToken} where ${accessToken.meshId} = ${mesh} and ${accessToken.peerNo} = ${peerNo}
          and exists (select from turned)
      )
      select case
        when exists (select from turned) then 'done'
        when exists (select from ${formerIdentity} f join ${member} m on m.mesh_id = f.mesh_id and m.peer_no = f.peer_no
          where f.mesh_id = ${mesh} and f.peer_key = ${oldKey} and m.peer_key = ${newKey}) then 'done'
        when exists (select from taken) then 'key_taken'
        else 'stale' end as outcome`,
  )
  return row!.outcome
}

/** How long mail to a former key is taken for its successor: senders learn of it meanwhile, or were away for very long. */
const FOLLOWED_DAYS = 60

/** Of these keys those that others have followed, and the key of now. @throws DatabaseError */
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
