/**
 * Stores each group's newest signed statement, which also determines who belongs to the group's space. Callers verify
 * signatures.
 */
import { arrayLiteral, byteaText, type Database } from '@sealpost/pg'
import { columnNames, execute, member, peerGroup, pool, session } from '@sealpost/schema'
import {
  GROUP_EPOCH_LAST,
  type GroupId,
  type MemberRef,
  type MeshId,
  type PeerKey,
  type PeerNo,
  type PoolId,
} from '@sealpost/std'
import { type SQL, sql } from 'drizzle-orm'

export interface GroupRow {
  readonly groupId: GroupId
  readonly epoch: number
  readonly statement: Uint8Array
}

type GroupOutcome = 'done' | 'stale' | 'not_owner' | 'too_many' | 'too_many_own'

/**
 * The maximum number of active groups in a mesh, without those of revoked owners, and of ended groups that are
 * remembered. Concurrent calls may exceed it by one.
 */
export const GROUPS_MAX = 1000

/**
 * Stores a statement about a group unless the stored one is newer. Repeating the call has no effect. A statement that
 * ends a group is stored even if it arrives before the founding statement. A user and its devices together own at most
 * `perOwnerMax` active groups.
 * @returns `stale` if the group has a statement of this epoch or a later one; `not_owner` even for a revoked member
 */
export async function putGroup(
  db: Database,
  owner: MemberRef,
  group: GroupRow,
  perOwnerMax = GROUPS_MAX,
): Promise<GroupOutcome> {
  const put = () => tryPutGroup(db, owner, group, perOwnerMax)
  // Concurrent calls don't see each other's new group, but a second attempt does.
  const outcome = (await put()) ?? (await put()) ?? 'stale'
  if (outcome === 'done' && group.epoch === GROUP_EPOCH_LAST) await deleteOldEnds(db, owner.meshId)
  return outcome
}

async function tryPutGroup(
  db: Database,
  { meshId, peer }: MemberRef,
  { groupId, epoch, statement }: GroupRow,
  perOwnerMax: number,
): Promise<GroupOutcome | null> {
  const mesh = sql`${meshId}::uuid`
  const bytes = sql`${byteaText(statement)}::bytea`
  const isEnd = sql`${epoch === GROUP_EPOCH_LAST}::boolean`
  const changing = [peerGroup.epoch, peerGroup.statement, peerGroup.overAt] as const
  const columns = columnNames(peerGroup.meshId, peerGroup.groupId, peerGroup.owner, ...changing)
  const going = sql`select count(*) from ${peerGroup} g join ${member} o on o.mesh_id = g.mesh_id and o.peer_no = g.owner
    where g.mesh_id = ${mesh} and g.epoch < ${GROUP_EPOCH_LAST} and o.revoked_at is null`
  const [row] = await execute<{ outcome: GroupOutcome | null }>(
    db,
    sql`
      with former as materialized (
        select g.owner, g.statement from ${peerGroup} g where g.mesh_id = ${mesh} and g.group_id = ${groupId}::uuid
      ), requester as (${requesterOf(mesh, peer)}), room as (
        select case
          when ${isEnd} or exists (select from former) then null
          when (${going}) >= ${GROUPS_MAX} then 'too_many'
          when (${going} and coalesce(o.person, o.peer_no) in (select person from requester)) >= ${perOwnerMax}::int then 'too_many_own' end as refusal
      ), put as (
        insert into ${peerGroup} (${columns})
        select ${mesh}, ${groupId}::uuid, requester.peer_no, ${epoch}::int, ${bytes},
          case when ${isEnd} then clock_timestamp() end
        from requester, room where room.refusal is null
        on conflict (${columnNames(peerGroup.meshId, peerGroup.groupId)}) do update
        set (${columnNames(...changing)}) = (excluded.epoch, excluded.statement, excluded.over_at)
        where ${peerGroup.epoch} < excluded.epoch and ${peerGroup.owner} = excluded.owner
        returning true
      )
      ${outcomeOf(bytes)}`,
  )
  return row!.outcome
}

/** Selects the requester's number, unless another member owns the former statement. */
const requesterOf = (mesh: SQL, peer: PeerNo): SQL => sql`
  select m.peer_no, coalesce(m.person, m.peer_no) as person from ${member} m
  where m.mesh_id = ${mesh} and m.peer_no = ${peer}::int and m.revoked_at is null
    and not exists (select from former f where f.owner <> m.peer_no)`

const outcomeOf = (statement: SQL): SQL => sql`
  select case
    when not exists (select from requester) then 'not_owner'
    when room.refusal is not null then room.refusal
    when exists (select from put) then 'done'
    when exists (select from former f where f.statement = ${statement}) then 'done'
    when exists (select from former) then 'stale' end as outcome
  from room`

async function deleteOldEnds(db: Database, meshId: MeshId): Promise<void> {
  const mesh = sql`${meshId}::uuid`
  await execute(
    db,
    sql`
      delete from ${peerGroup} g where g.mesh_id = ${mesh} and g.group_id in (
        select e.group_id from ${peerGroup} e where e.mesh_id = ${mesh} and e.epoch = ${GROUP_EPOCH_LAST}
        order by e.over_at desc nulls last, e.group_id offset ${GROUPS_MAX})`,
  )
}

interface GroupRange {
  readonly after: GroupId
  readonly limit: number
  /** Limits the list to active groups that this peer owns or belongs to. */
  readonly naming?: PeerKey
}

/** Lists groups by id after the given one, including ended groups. */
export function listGroups(db: Database, meshId: MeshId, { after, limit, naming }: GroupRange): Promise<GroupRow[]> {
  // Search for a listed key by substring: a 32-byte key can't occur in a statement by chance.
  const named =
    naming && sql`and g.epoch < ${GROUP_EPOCH_LAST} and position(decode(${naming}, 'hex') in g.statement) > 0`
  return execute<GroupRow>(
    db,
    sql`
      select replace(g.group_id::text, '-', '') as "groupId", g.epoch, g.statement
      from ${peerGroup} g where g.mesh_id = ${meshId}::uuid and g.group_id > ${after}::uuid ${named ?? sql``}
      order by g.group_id limit ${limit}::int`,
  )
}

export function findGroups(db: Database, meshId: MeshId, groups: readonly GroupId[]): Promise<GroupRow[]> {
  return execute<GroupRow>(
    db,
    sql`
      select replace(g.group_id::text, '-', '') as "groupId", g.epoch, g.statement
      from unnest(${arrayLiteral(groups)}::uuid[]) as k (group_id)
      join ${peerGroup} g on g.mesh_id = ${meshId}::uuid and g.group_id = k.group_id`,
  )
}

/** SQL: the member is not revoked and, if it is a device, the user's statement has not expired. */
const isThere = (m: string) =>
  `${m}.revoked_at is null and not ${m}.is_pool and coalesce(${m}.vouched_until > clock_timestamp(), true)`

/** SQL: statement `g` lists `key`. A substring search is enough because a 32-byte key can't occur there by chance. */
const isNamed = (key: string, g: string) => `position(${key} in ${g}.statement) > 0`

/** SQL: the group lists the member's key, its user's key, or a former key of either. */
const isInGroup = (m: string, group: string) => `exists (
    select from peer_group g where g.mesh_id = ${m}.mesh_id and g.group_id = ${group} and g.epoch < ${GROUP_EPOCH_LAST}
      and (${isNamed(`${m}.peer_key`, 'g')}
        or exists (select from member p where p.mesh_id = ${m}.mesh_id and p.peer_no = ${m}.person and ${isNamed('p.peer_key', 'g')})
        or exists (select from former_identity f where f.mesh_id = ${m}.mesh_id
          and f.peer_no in (${m}.peer_no, coalesce(${m}.person, ${m}.peer_no)) and ${isNamed('f.peer_key', 'g')})))`

/** SQL: the member `m` may open this space, which is the space of its mesh or of a group that lists it. */
export const isOfSpace = (m: string, space: string) =>
  `${isThere(m)} and (${space} = ${m}.mesh_id or ${isInGroup(m, space)})`

/** SQL: the member `m` may define this space, as an admin of the mesh or as the owner of the group. */
export const isOwnerOfSpace = (m: string, space: string) => `${isThere(m)} and case when ${space} = ${m}.mesh_id
    then ${m}.role = 'admin'
    else exists (select from peer_group g where g.mesh_id = ${m}.mesh_id and g.group_id = ${space} and g.owner = ${m}.peer_no
      and g.epoch < ${GROUP_EPOCH_LAST}) end`

/** The newest statement of a pool, whose signature callers have verified. */
export interface PoolRow {
  readonly poolId: PoolId
  readonly epoch: number
  readonly statement: Uint8Array
}

/**
 * The maximum number of active pools in a mesh, without those of revoked owners. Concurrent calls may exceed it by one.
 */
export const POOLS_MAX = 1000
/** How long an ended pool counts, because its rows remain. */
const ENDED_COUNTS_FOR = sql`interval '1 day'`
/** How long an ended pool remains listed, so that clients learn that it has ended. */
const ENDED_LISTED_FOR = sql`interval '7 days'`

/**
 * Stores a statement about a pool unless the stored one is newer. Repeating the call has no effect. Its members are the
 * listed peers that are members of the mesh. A user and its devices together own at most `perOwnerMax` pools; an ended
 * one counts for one day.
 * @returns an outcome like `putGroup`
 */
export async function putPool(
  db: Database,
  owner: MemberRef,
  record: PoolRow & { readonly members: readonly PeerKey[] },
  perOwnerMax = POOLS_MAX,
): Promise<GroupOutcome> {
  const put = () => tryPutPool(db, owner, record, perOwnerMax)
  // Concurrent calls don't see each other's new pool, but a second attempt does.
  return (await put()) ?? (await put()) ?? 'stale'
}

async function tryPutPool(
  db: Database,
  { meshId, peer }: MemberRef,
  { poolId, epoch, statement, members }: PoolRow & { readonly members: readonly PeerKey[] },
  perOwnerMax: number,
): Promise<GroupOutcome | null> {
  const isEnd = sql`${epoch === GROUP_EPOCH_LAST}::boolean`
  const mesh = sql`${meshId}::uuid`
  const key = sql`${byteaText(poolId)}::bytea`
  const bytes = sql`${byteaText(statement)}::bytea`
  const keys = sql`${arrayLiteral(members.map(byteaText))}::bytea[]`
  const memberColumns = columnNames(
    ...[member.meshId, member.peerKey, member.boxKey, member.boxEpoch, member.bindingNotAfterMs],
    ...[member.bindingSignature, member.isPool],
  )
  const columns = columnNames(pool.meshId, pool.peerNo, pool.owner, pool.epoch, pool.members, pool.statement)
  const [row] = await execute<{ outcome: GroupOutcome | null }>(
    db,
    sql`
      with former as materialized (
        select p.peer_no, p.owner, p.statement from ${member} m join ${pool} p using (mesh_id, peer_no)
        where m.mesh_id = ${mesh} and m.peer_key = ${key}
      ), requester as (${requesterOf(mesh, peer)}), room as (
        select case
          when ${isEnd} or exists (select from former) then null
          when ${POOLS_MAX} <= (select count(*) from ${pool} p join ${member} o on o.mesh_id = p.mesh_id and o.peer_no = p.owner
            where p.mesh_id = ${mesh} and p.epoch < ${GROUP_EPOCH_LAST} and o.revoked_at is null) then 'too_many'
          when ${perOwnerMax}::int <= (select count(*) from ${pool} p join ${member} m using (mesh_id, peer_no)
            join ${member} o on o.mesh_id = p.mesh_id and o.peer_no = p.owner
            where p.mesh_id = ${mesh} and coalesce(o.person, o.peer_no) in (select person from requester)
              and coalesce(m.revoked_at > clock_timestamp() - ${ENDED_COUNTS_FOR}, true)) then 'too_many_own' end as refusal
      ), founded as (
        insert into ${member} (${memberColumns})
        select ${mesh}, ${key}, decode(repeat('00', 32), 'hex'), 0, 0, decode(repeat('00', 64), 'hex'), true
        from requester, room where room.refusal is null and not ${isEnd} and not exists (select from former)
        on conflict do nothing returning ${columnNames(member.peerNo)} as peer_no
      ), opened as (
        insert into ${session} (${columnNames(session.meshId, session.peerNo)}) select ${mesh}, peer_no from founded
      ), put as (
        insert into ${pool} (${columns})
        select ${mesh}, p.peer_no, requester.peer_no, ${epoch}::int, array(
          select m.peer_no from ${member} m where m.mesh_id = ${mesh} and m.peer_key = any (${keys})
            and m.revoked_at is null and not m.is_pool order by m.peer_no), ${bytes}
        from requester, (select peer_no from former union all select peer_no from founded) p
        on conflict (${columnNames(pool.meshId, pool.peerNo)}) do update
        set ${columnNames(pool.epoch)} = excluded.epoch, ${columnNames(pool.members)} = excluded.members,
          ${columnNames(pool.statement)} = excluded.statement
        where ${pool.epoch} < excluded.epoch and ${pool.owner} = excluded.owner
        returning ${columnNames(pool.peerNo)} as peer_no
      ), ended as (
        update ${member} set ${columnNames(member.revokedAt)} = clock_timestamp()
        where ${isEnd} and ${member.meshId} = ${mesh} and ${member.peerNo} in (select peer_no from put)
      )
      ${outcomeOf(bytes)}`,
  )
  return row!.outcome
}

/** Lists pools by id after the given one, including recently ended ones. */
export function listPools(
  db: Database,
  meshId: MeshId,
  { after, limit }: { after: PoolId; limit: number },
): Promise<PoolRow[]> {
  return execute<PoolRow>(
    db,
    sql`
      select encode(m.peer_key, 'hex') as "poolId", p.epoch, p.statement
      from ${pool} p join ${member} m using (mesh_id, peer_no)
      where p.mesh_id = ${meshId}::uuid and m.peer_key > ${byteaText(after)}::bytea
        and coalesce(m.revoked_at > clock_timestamp() - ${ENDED_LISTED_FOR}, true)
      order by m.peer_key limit ${limit}::int`,
  )
}

export async function findPoolStatement(db: Database, meshId: MeshId, poolId: PoolId): Promise<Uint8Array | null> {
  const [row] = await execute<{ statement: Uint8Array }>(
    db,
    sql`
      select p.statement from ${pool} p join ${member} m using (mesh_id, peer_no)
      where p.mesh_id = ${meshId}::uuid and m.peer_key = ${byteaText(poolId)}::bytea`,
  )
  return row?.statement ?? null
}
