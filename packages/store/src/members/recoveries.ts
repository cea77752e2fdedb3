/**
 * Stores heir statements and recoveries (docs/adr/0016), after callers have verified their signatures. The clock of the database
 * decides when a recovery may take effect.
 */
import { arrayLiteral, byteaText, type Database } from '@sealpost/pg'
import { columnNames, execute, formerIdentity, heirStatement, keyRecovery, member } from '@sealpost/schema'
import type { MemberRef, MeshId, Millis, PeerKey, PeerNo } from '@sealpost/std'
import { type SQL, sql } from 'drizzle-orm'
import type { DeviceBinding } from './devices.ts'
import { rotateIdentity } from './key-bindings.ts'

/** How long the former key can object to a recovery. */
export const OBJECTION_DAYS = 7

export interface NewHeirs {
  readonly user: PeerKey
  readonly epoch: number
  readonly devices: readonly PeerKey[]
  readonly bytes: Uint8Array
}

/**
 * Stores the statement, which cancels a pending recovery. A repeated call has no further effect.
 * @returns `device_unknown` if an heir is not an enrolled device of the requester; `stale_epoch` if another statement has this
 * epoch or a later one, or the key is not the requester's
 */
export async function putHeirs(
  db: Database,
  { meshId, peer }: MemberRef,
  { user, epoch, devices, bytes }: NewHeirs,
): Promise<'done' | 'device_unknown' | 'stale_epoch'> {
  const mesh = sql`${meshId}::uuid`
  const peerNo = sql`${peer}::int`
  const columns = columnNames(
    ...[heirStatement.meshId, heirStatement.peerNo, heirStatement.userKey, heirStatement.epoch],
    heirStatement.statement,
  )
  const statement = sql`${byteaText(bytes)}::bytea`
  const [row] = await execute<{ outcome: 'done' | 'device_unknown' | 'stale_epoch' }>(
    db,
    sql`
      with owner as materialized (
        select m.peer_key from ${member} m where m.mesh_id = ${mesh} and m.peer_no = ${peerNo}
          and m.peer_key = ${byteaText(user)}::bytea and m.person is null and m.revoked_at is null for update
      ), strange as materialized (
        select from unnest(${arrayLiteral(devices.map(byteaText))}::bytea[]) as k (key) where not exists (
          select from ${member} d where d.mesh_id = ${mesh} and d.peer_key = k.key and d.person = ${peerNo}
            and d.revoked_at is null and d.vouched_until > clock_timestamp())
      ), stored as (
        insert into ${heirStatement} (${columns})
        select ${mesh}, ${peerNo}, owner.peer_key, ${epoch}::int, ${statement} from owner where not exists (select from strange)
        on conflict (${columnNames(heirStatement.meshId, heirStatement.peerNo)}) do update
        set ${columnNames(heirStatement.userKey)} = excluded.user_key, ${columnNames(heirStatement.epoch)} = excluded.epoch,
          ${columnNames(heirStatement.statement)} = excluded.statement
        where ${heirStatement.userKey} <> excluded.user_key or ${heirStatement.epoch} < excluded.epoch
        returning 1
      )
      select case
        when exists (select from stored) or exists (select from ${heirStatement} h
          where h.mesh_id = ${mesh} and h.peer_no = ${peerNo} and h.statement = ${statement}) then 'done'
        when exists (select from owner) and exists (select from strange) then 'device_unknown'
        else 'stale_epoch' end as outcome`,
  )
  return row!.outcome
}

/** A recovery whose signatures the caller has verified, including that of the binding, which is the successor's. */
export interface NewRecovery {
  readonly former: PeerKey
  readonly heir: PeerKey
  /** The heir statement that the recovery contains. */
  readonly heirs: Uint8Array
  readonly bytes: Uint8Array
  readonly binding: DeviceBinding
}

/**
 * `not_heir`: the requester is not the heir, or not a device of this user. `recovery_cancelled`: the user has rotated its key or
 * named heirs again. `recovery_pending`: another heir has published one. `stale_epoch`: the user has a box key with this epoch
 * or a later one.
 */
export type RecoveryRefusal = 'not_heir' | 'recovery_cancelled' | 'recovery_pending' | 'key_taken' | 'stale_epoch'

export type RecoveryOutcome =
  | { readonly status: 'done'; readonly user: PeerNo }
  | { readonly status: 'pending'; readonly waitMs: Millis }
  | { readonly status: RecoveryRefusal }

/**
 * Publishes a recovery on behalf of the heir, or makes it take effect if it has waited long enough. Another successor from the
 * same heir replaces the first one, and waits again. Repeating a call has no further effect.
 */
export async function recoverIdentity(
  db: Database,
  requester: MemberRef,
  recovery: NewRecovery,
): Promise<RecoveryOutcome> {
  const { user, outcome, waitMs } = await publish(db, requester, recovery)
  if (outcome === 'done') return { status: 'done', user: user! }
  if (outcome !== 'pending') return { status: outcome }
  if (waitMs! > 0) return { status: 'pending', waitMs: Math.ceil(waitMs!) }
  const { former, bytes: statement, binding } = recovery
  const owner = { meshId: requester.meshId, peer: user! }
  const mayTakeEffect = hasWaited(requester.meshId, statement)
  const rotated = await rotateIdentity(db, owner, { former, statement, binding, mayTakeEffect })
  if (rotated === 'done') return { status: 'done', user: user! }
  return { status: rotated === 'stale' ? 'recovery_cancelled' : rotated }
}

/** SQL: nobody has objected to the recovery in time. */
const hasWaited = (meshId: MeshId, statement: Uint8Array): SQL => sql`exists (
  select from ${keyRecovery} r join ${heirStatement} h on h.mesh_id = r.mesh_id and h.peer_no = r.peer_no
  where r.mesh_id = ${meshId}::uuid and r.statement = ${byteaText(statement)}::bytea and h.user_key = r.former_key
    and h.epoch = r.epoch and r.published_at <= clock_timestamp() - make_interval(days => ${OBJECTION_DAYS}))`

interface Published {
  readonly user: PeerNo | null
  readonly outcome: 'pending' | 'done' | RecoveryRefusal
  readonly waitMs: Millis | null
}

async function publish(
  db: Database,
  { meshId, peer }: MemberRef,
  { former, heir, heirs, bytes, binding }: NewRecovery,
): Promise<Published> {
  const mesh = sql`${meshId}::uuid`
  const oldKey = sql`${byteaText(former)}::bytea`
  const newKey = sql`${byteaText(binding.peerKey)}::bytea`
  const heirKey = sql`${byteaText(heir)}::bytea`
  const statement = sql`${byteaText(bytes)}::bytea`
  const wait = sql`make_interval(days => ${OBJECTION_DAYS})`
  const replaced = [keyRecovery.epoch, keyRecovery.heirKey, keyRecovery.successorKey, keyRecovery.statement]
  const columns = columnNames(keyRecovery.meshId, keyRecovery.formerKey, keyRecovery.peerNo, ...replaced)
  const changes = replaced.map((column) => sql`${columnNames(column)} = excluded.${columnNames(column)}`)
  const [row] = await execute<Published>(
    db,
    sql`
      with heir as materialized (
        select m.person from ${member} m where m.mesh_id = ${mesh} and m.peer_no = ${peer}::int and m.peer_key = ${heirKey}
          and m.revoked_at is null and m.vouched_until > clock_timestamp()
      ), finished as materialized (
        select f.peer_no from ${formerIdentity} f join heir on heir.person = f.peer_no
        where f.mesh_id = ${mesh} and f.peer_key = ${oldKey} and f.statement = ${statement}
      ), owner as materialized (
        select m.peer_no, m.box_epoch, h.epoch from heir join ${member} m on m.mesh_id = ${mesh} and m.peer_no = heir.person
        join ${heirStatement} h on h.mesh_id = m.mesh_id and h.peer_no = m.peer_no
        where m.peer_key = ${oldKey} and m.revoked_at is null and h.user_key = ${oldKey}
          and h.statement = ${byteaText(heirs)}::bytea
        for update of m
      ), taken as materialized (
        select from ${member} m where m.mesh_id = ${mesh} and m.peer_key = ${newKey}
        union all
        select from ${formerIdentity} f where f.mesh_id = ${mesh} and f.peer_key = ${newKey}
      ), stored as (
        insert into ${keyRecovery} (${columns})
        select ${mesh}, ${oldKey}, owner.peer_no, owner.epoch, ${heirKey}, ${newKey}, ${statement}
        from owner where owner.box_epoch < ${binding.boxEpoch}::int and not exists (select from taken)
        on conflict (${columnNames(keyRecovery.meshId, keyRecovery.formerKey)}) do update
        set ${sql.join(changes, sql`, `)}, ${columnNames(keyRecovery.publishedAt)} = clock_timestamp()
        where ${keyRecovery.statement} <> excluded.statement
          and (${keyRecovery.epoch} < excluded.epoch or ${keyRecovery.heirKey} = excluded.heir_key)
        returning ${keyRecovery.publishedAt} as published_at
      ), known as (
        select published_at from stored
        union all
        select r.published_at from ${keyRecovery} r join owner on owner.epoch = r.epoch
        where r.mesh_id = ${mesh} and r.former_key = ${oldKey} and r.statement = ${statement}
          and not exists (select from stored)
      )
      select coalesce((select peer_no from finished), (select peer_no from owner)) as user,
        (select extract(epoch from published_at + ${wait} - clock_timestamp())::float8 * 1000 from known) as "waitMs",
        case
          when exists (select from finished) then 'done'
          when not exists (select from heir) then 'not_heir'
          when exists (select from known) then 'pending'
          when not exists (select from owner) then 'recovery_cancelled'
          when exists (select from taken) then 'key_taken'
          when (select box_epoch from owner) >= ${binding.boxEpoch}::int then 'stale_epoch'
          else 'recovery_pending' end as outcome`,
  )
  return row!
}

/** SQL: the heir statements of the members `found`, and the recoveries from or to the keys `asked`, without cancelled ones. */
export const heirsAndRecoveriesSql = (mesh: SQL): SQL => sql`
  select 'heirs', h.statement from ${heirStatement} h join found on found.peer_no = h.peer_no
  where h.mesh_id = ${mesh} and h.user_key = found.peer_key
  union all
  select case when done.is_so then 'recovery' else 'pending_recovery' end, r.statement from ${keyRecovery} r
  cross join lateral (select exists (select from ${formerIdentity} f
    where f.mesh_id = r.mesh_id and f.peer_key = r.former_key and f.statement = r.statement) as is_so) as done
  where r.mesh_id = ${mesh} and (r.former_key in (select key from asked) or r.successor_key in (select key from asked))
    and (done.is_so or exists (
      select from ${heirStatement} h join ${member} m on m.mesh_id = h.mesh_id and m.peer_no = h.peer_no
      where h.mesh_id = r.mesh_id and h.peer_no = r.peer_no and h.user_key = r.former_key and h.epoch = r.epoch
        and m.peer_key = r.former_key))`
