/** Pools as their owners' statements have them: the newest of each. Signatures are checked before they come here. */
import { GROUP_EPOCH_LAST, type MeshId, type PeerKey, type PoolId } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import { arrayLiteral, byteaText } from './column-types.ts'
import type { Database } from './connect.ts'
import type { Owner } from './consent.ts'
import { execute, names } from './drizzle-run.ts'
import type { GroupOutcome } from './groups.ts'
import { member, pool, session } from './schema.ts'

export interface PoolRecord {
  readonly poolId: PoolId
  readonly epoch: number
  readonly statement: Uint8Array
}

/** Pools of one mesh, not counting those that ended or whose owner was revoked. Of two foundings at once both may fit. */
export const POOLS_MAX = 1000
/** Its rows stay, so that an owner can't found and end pools without bound. */
const ENDED_COUNTS_FOR = sql`interval '1 day'`
/** Clients that know the pool learn of its end from the list. */
const ENDED_LISTED_FOR = sql`interval '7 days'`

/**
 * Keeps a statement in the place of an older one of its pool; of the peers it names those that are members of the mesh
 * now become members of the pool. The first statement makes the pool a recipient, the last one ends that. The same one said
 * again is done already. A person and its devices have at most `perOwnerMax` pools together; one that ended counts for a day
 * more.
 * @returns as `putGroup`
 * @throws DatabaseError
 */
export async function putPool(
  db: Database,
  owner: Owner,
  record: PoolRecord & { readonly members: readonly PeerKey[] },
  perOwnerMax = POOLS_MAX,
): Promise<GroupOutcome> {
  const put = () => tryPutPool(db, owner, record, perOwnerMax)
  // Two foundings of one pool at the same moment don't see each other: the second look does.
  return (await put()) ?? (await put()) ?? 'stale'
}

async function tryPutPool(
  db: Database,
  { meshId, peer }: Owner,
  { poolId, epoch, statement, members }: PoolRecord & { readonly members: readonly PeerKey[] },
  perOwnerMax: number,
): Promise<GroupOutcome | null> {
  const isEnd = sql`${epoch === GROUP_EPOCH_LAST}::boolean`
  const mesh = sql`${meshId}::uuid`
  const key = sql`${byteaText(poolId)}::bytea`
  const bytes = sql`${byteaText(statement)}::bytea`
  const keys = sql`${arrayLiteral(members.map(byteaText))}::bytea[]`
  const memberColumns = names(
    ...[member.meshId, member.peerKey, member.boxKey, member.boxEpoch, member.bindingNotAfterMs],
    ...[member.bindingSignature, member.isPool],
  )
  const columns = names(pool.meshId, pool.peerNo, pool.owner, pool.epoch, pool.members, pool.statement)
  const [row] = await execute<{ outcome: GroupOutcome | null }>(
    db,
    sql`
      with former as materialized (
        select p.peer_no, p.owner, p.statement from ${member} m join ${pool} p using (mesh_id, peer_no)
        where m.mesh_id = ${mesh} and m.peer_key = ${key}
      ), asker as (
        select m.peer_no, coalesce(m.person, m.peer_no) as person from ${member} m
        where m.mesh_id = ${mesh} and m.peer_no = ${peer}::int and m.revoked_at is null
          and not exists (select from former f where f.owner <> m.peer_no)
      ), room as (
        select case
          when ${isEnd} or exists (select from former) then null
          when ${POOLS_MAX} <= (select count(*) from ${pool} p join ${member} o on o.mesh_id = p.mesh_id and o.peer_no = p.owner
            where p.mesh_id = ${mesh} and p.epoch < ${GROUP_EPOCH_LAST} and o.revoked_at is null) then 'too_many'
          when ${perOwnerMax}::int <= (select count(*) from ${pool} p join ${member} m using (mesh_id, peer_no)
            join ${member} o on o.mesh_id = p.mesh_id and o.peer_no = p.owner
            where p.mesh_id = ${mesh} and coalesce(o.person, o.peer_no) in (select person from asker)
              and coalesce(m.revoked_at > clock_timestamp() - ${ENDED_COUNTS_FOR}, true)) then 'too_many_own' end as refusal
      ), founded as (
        insert into ${member} (${memberColumns})
        select ${mesh}, ${key}, decode(repeat('00', 32), 'hex'), 0, 0, decode(repeat('00', 64), 'hex'), true
        from asker, room where room.refusal is null and not ${isEnd} and not exists (select from former)
        on conflict do nothing returning ${names(member.peerNo)} as peer_no
      ), opened as (
        insert into ${session} (${names(session.meshId, session.peerNo)}) select ${mesh}, peer_no from founded
      ), put as (
        insert into ${pool} (${columns})
        select ${mesh}, p.peer_no, asker.peer_no, ${epoch}::int, array(
          select m.peer_no from ${member} m where m.mesh_id = ${mesh} and m.peer_key = any (${keys})
            and m.revoked_at is null and not m.is_pool order by m.peer_no), ${bytes}
        from asker, (select peer_no from former union all select peer_no from founded) p
        on conflict (${names(pool.meshId, pool.peerNo)}) do update
        set ${names(pool.epoch)} = excluded.epoch, ${names(pool.members)} = excluded.members,
          ${names(pool.statement)} = excluded.statement
        where ${pool.epoch} < excluded.epoch and ${pool.owner} = excluded.owner
        returning ${names(pool.peerNo)} as peer_no
      ), ended as (
        update ${member} set ${names(member.revokedAt)} = clock_timestamp()
        where ${isEnd} and ${member.meshId} = ${mesh} and ${member.peerNo} in (select peer_no from put)
      )
      select case
        when not exists (select from asker) then 'not_owner'
        when room.refusal is not null then room.refusal
        when exists (select from put) then 'done'
        when exists (select from former f where f.statement = ${bytes}) then 'done'
        when exists (select from former) then 'stale' end as outcome
      from room`,
  )
  return row!.outcome
}

/** The pools of a mesh behind one, by their ids, those that ended lately among them. @throws DatabaseError */
export function listPools(
  db: Database,
  meshId: MeshId,
  { after, limit }: { after: PoolId; limit: number },
): Promise<PoolRecord[]> {
  return execute<PoolRecord>(
    db,
    sql`
      select encode(m.peer_key, 'hex') as "poolId", p.epoch, p.statement
      from ${pool} p join ${member} m using (mesh_id, peer_no)
      where p.mesh_id = ${meshId}::uuid and m.peer_key > ${byteaText(after)}::bytea
        and coalesce(m.revoked_at > clock_timestamp() - ${ENDED_LISTED_FOR}, true)
      order by m.peer_key limit ${limit}::int`,
  )
}

/** The newest statement of a pool; null when there is none. @throws DatabaseError */
export async function findPoolStatement(db: Database, meshId: MeshId, poolId: PoolId): Promise<Uint8Array | null> {
  const [row] = await execute<{ statement: Uint8Array }>(
    db,
    sql`
      select p.statement from ${pool} p join ${member} m using (mesh_id, peer_no)
      where p.mesh_id = ${meshId}::uuid and m.peer_key = ${byteaText(poolId)}::bytea`,
  )
  return row?.statement ?? null
}
