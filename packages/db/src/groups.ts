/** Groups as their owners' statements have them: the newest of each. Signatures are checked before they come here. */
import { GROUP_EPOCH_LAST, type GroupId, type MeshId, type PeerKey } from '@sealpost/std'
import { sql } from 'drizzle-orm'
import { arrayLiteral, byteaText } from './column-types.ts'
import type { Database } from './connect.ts'
import type { Owner } from './consent.ts'
import { execute, names } from './drizzle-run.ts'
import { member, peerGroup } from './schema.ts'

export interface GroupRecord {
  readonly groupId: GroupId
  readonly epoch: number
  readonly statement: Uint8Array
}

export type GroupOutcome = 'done' | 'stale' | 'not_owner' | 'too_many' | 'too_many_own'

/**
 * Groups of one mesh that are going on, not counting those whose owner was revoked; and as many that were ended: the ends
 * that came first are forgotten. Of two that are founded at the same moment both may fit.
 */
export const GROUPS_MAX = 1000

/**
 * Keeps a statement in the place of an older one of its group. The same one said again is done already. An end is kept
 * also when it overtakes the founding. A person and its devices have at most `perOwnerMax` groups that are going on, together.
 * @returns `stale` when one of its epoch or a later one stands; `not_owner` also for a member that was revoked
 * @throws DatabaseError
 */
export async function putGroup(
  db: Database,
  owner: Owner,
  group: GroupRecord,
  perOwnerMax = GROUPS_MAX,
): Promise<GroupOutcome> {
  const put = () => tryPutGroup(db, owner, group, perOwnerMax)
  // Two foundings of one group at the same moment don't see each other: the second look does.
  const outcome = (await put()) ?? (await put()) ?? 'stale'
  if (outcome === 'done' && group.epoch === GROUP_EPOCH_LAST) await forgetEnds(db, owner.meshId)
  return outcome
}

async function tryPutGroup(
  db: Database,
  { meshId, peer }: Owner,
  { groupId, epoch, statement }: GroupRecord,
  perOwnerMax: number,
): Promise<GroupOutcome | null> {
  const mesh = sql`${meshId}::uuid`
  const bytes = sql`${byteaText(statement)}::bytea`
  const isEnd = sql`${epoch === GROUP_EPOCH_LAST}::boolean`
  const changing = [peerGroup.epoch, peerGroup.statement, peerGroup.overAt] as const
  const columns = names(peerGroup.meshId, peerGroup.groupId, peerGroup.owner, ...changing)
  const going = sql`select count(*) from ${peerGroup} g join ${member} o on o.mesh_id = g.mesh_id and o.peer_no = g.owner
    where g.mesh_id = ${mesh} and g.epoch < ${GROUP_EPOCH_LAST} and o.revoked_at is null`
  const [row] = await execute<{ outcome: GroupOutcome | null }>(
    db,
    sql`
      with former as materialized (
        select g.owner, g.statement from ${peerGroup} g where g.mesh_id = ${mesh} and g.group_id = ${groupId}::uuid
      ), asker as (
        select m.peer_no, coalesce(m.person, m.peer_no) as person from ${member} m
        where m.mesh_id = ${mesh} and m.peer_no = ${peer}::int and m.revoked_at is null
          and not exists (select from former f where f.owner <> m.peer_no)
      ), room as (
        select case
          when ${isEnd} or exists (select from former) then null
          when (${going}) >= ${GROUPS_MAX} then 'too_many'
          when (${going} and coalesce(o.person, o.peer_no) in (select person from asker)) >= ${perOwnerMax}::int then 'too_many_own' end as refusal
      ), put as (
        insert into ${peerGroup} (${columns})
        select ${mesh}, ${groupId}::uuid, asker.peer_no, ${epoch}::int, ${bytes},
          case when ${isEnd} then clock_timestamp() end
        from asker, room where room.refusal is null
        on conflict (${names(peerGroup.meshId, peerGroup.groupId)}) do update
        set (${names(...changing)}) = (excluded.epoch, excluded.statement, excluded.over_at)
        where ${peerGroup.epoch} < excluded.epoch and ${peerGroup.owner} = excluded.owner
        returning true
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

async function forgetEnds(db: Database, meshId: MeshId): Promise<void> {
  const mesh = sql`${meshId}::uuid`
  await execute(
    db,
    sql`
      delete from ${peerGroup} g where g.mesh_id = ${mesh} and g.group_id in (
        select e.group_id from ${peerGroup} e where e.mesh_id = ${mesh} and e.epoch = ${GROUP_EPOCH_LAST}
        order by e.over_at desc nulls last, e.group_id offset ${GROUPS_MAX})`,
  )
}

export interface GroupRange {
  readonly after: GroupId
  readonly limit: number
  /** Only those that are going on and that this peer belongs to or owns. */
  readonly naming?: PeerKey
}

/** The groups of a mesh behind one, by their ids, ended ones among them. @throws DatabaseError */
export function listGroups(db: Database, meshId: MeshId, { after, limit, naming }: GroupRange): Promise<GroupRecord[]> {
  // A statement says 32-byte keys, ids of 16 bytes and a signature: where the bytes of a key stand, that key is named.
  const named =
    naming && sql`and g.epoch < ${GROUP_EPOCH_LAST} and position(decode(${naming}, 'hex') in g.statement) > 0`
  return execute<GroupRecord>(
    db,
    sql`
      select replace(g.group_id::text, '-', '') as "groupId", g.epoch, g.statement
      from ${peerGroup} g where g.mesh_id = ${meshId}::uuid and g.group_id > ${after}::uuid ${named ?? sql``}
      order by g.group_id limit ${limit}::int`,
  )
}

/** Of these groups those that there are. @throws DatabaseError */
export function findGroups(db: Database, meshId: MeshId, groups: readonly GroupId[]): Promise<GroupRecord[]> {
  return execute<GroupRecord>(
    db,
    sql`
      select replace(g.group_id::text, '-', '') as "groupId", g.epoch, g.statement
      from unnest(${arrayLiteral(groups)}::uuid[]) as k (group_id)
      join ${peerGroup} g on g.mesh_id = ${meshId}::uuid and g.group_id = k.group_id`,
  )
}
