/** Groups as their owners' statements have them: the newest of each. Signatures are checked before they come here. */
import type { GroupId, MeshId } from '@sealpost/std'
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

export type GroupOutcome = 'done' | 'stale' | 'not_owner' | 'too_many'

/** Groups of one mesh. Of two that are founded at the same moment both may fit. */
export const GROUPS_MAX = 1000

/**
 * Keeps a statement in the place of an older one of its group. The same one said again is done already.
 * @returns `stale` when one of its epoch or a later one stands; `not_owner` also for a member that was revoked
 * @throws DatabaseError
 */
export async function putGroup(db: Database, owner: Owner, group: GroupRecord): Promise<GroupOutcome> {
  // Two foundings of one group at the same moment don't see each other: the second look does.
  return (await tryPutGroup(db, owner, group)) ?? (await tryPutGroup(db, owner, group)) ?? 'stale'
}

async function tryPutGroup(
  db: Database,
  { meshId, peer }: Owner,
  { groupId, epoch, statement }: GroupRecord,
): Promise<GroupOutcome | null> {
  const mesh = sql`${meshId}::uuid`
  const bytes = sql`${byteaText(statement)}::bytea`
  const columns = names(peerGroup.meshId, peerGroup.groupId, peerGroup.owner, peerGroup.epoch, peerGroup.statement)
  const [row] = await execute<{ outcome: GroupOutcome | null }>(
    db,
    sql`
      with former as materialized (
        select g.owner, g.statement from ${peerGroup} g where g.mesh_id = ${mesh} and g.group_id = ${groupId}::uuid
      ), asker as (
        select m.peer_no from ${member} m
        where m.mesh_id = ${mesh} and m.peer_no = ${peer}::int and m.revoked_at is null
          and not exists (select from former f where f.owner <> m.peer_no)
      ), fitting as (
        select from (select) as one where exists (select from former)
          or ${GROUPS_MAX} > (select count(*) from ${peerGroup} g where g.mesh_id = ${mesh})
      ), put as (
        insert into ${peerGroup} (${columns})
        select ${mesh}, ${groupId}::uuid, asker.peer_no, ${epoch}::int, ${bytes} from asker, fitting
        on conflict (${names(peerGroup.meshId, peerGroup.groupId)}) do update
        set ${names(peerGroup.epoch)} = excluded.epoch, ${names(peerGroup.statement)} = excluded.statement
        where ${peerGroup.epoch} < excluded.epoch and ${peerGroup.owner} = excluded.owner
        returning true
      )
      select case
        when not exists (select from asker) then 'not_owner'
        when not exists (select from fitting) then 'too_many'
        when exists (select from put) then 'done'
        when exists (select from former f where f.statement = ${bytes}) then 'done'
        when exists (select from former) then 'stale' end as outcome`,
  )
  return row!.outcome
}

/** The groups of a mesh behind one, by their ids. @throws DatabaseError */
export function listGroups(
  db: Database,
  meshId: MeshId,
  { after, limit }: { after: GroupId; limit: number },
): Promise<GroupRecord[]> {
  return execute<GroupRecord>(
    db,
    sql`
      select replace(g.group_id::text, '-', '') as "groupId", g.epoch, g.statement
      from ${peerGroup} g where g.mesh_id = ${meshId}::uuid and g.group_id > ${after}::uuid
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
