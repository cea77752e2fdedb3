/** How much of what is limited by owner or sender is used, by whom most: for operators, who look now and then. */
import { GROUP_EPOCH_LAST, type MeshId, type PeerKey } from '@sealpost/std'
import type { Database } from './connect.ts'

export interface LargestUse {
  /** Of one owner, or of one sender for one recipient. */
  readonly what: 'groups' | 'pools' | 'dead_letters' | 'dead_letter_bytes'
  readonly used: number
  readonly peerKey: PeerKey
}

/** Dead letters are looked at up to here. */
const DEAD_LETTERS_MAX = 100_000

/** The largest of each kind; none where there is nothing of it. Pools that ended within a day count, as for their quota. @throws DatabaseError */
export function largestUses(db: Database, meshId: MeshId): Promise<LargestUse[]> {
  return db.run(
    (sql) => sql<LargestUse[]>`
      with dead as materialized (
        select sender, count(*) as letters, sum(bytes) as bytes
        from (select recipient, sender, bytes from dead_letter where mesh_id = ${meshId}::uuid limit ${DEAD_LETTERS_MAX}) d
        group by recipient, sender
      ), used as (
        (select 'groups' as what, owner as peer, count(*)::float8 as used from peer_group
         where mesh_id = ${meshId}::uuid and epoch < ${GROUP_EPOCH_LAST} group by owner order by used desc limit 1)
        union all
        (select 'pools', p.owner, count(*)::float8 as used from pool p join member m using (mesh_id, peer_no)
         where p.mesh_id = ${meshId}::uuid and coalesce(m.revoked_at > clock_timestamp() - interval '1 day', true)
         group by p.owner order by used desc limit 1)
        union all
        (select 'dead_letters', sender, letters::float8 from dead order by letters desc limit 1)
        union all
        (select 'dead_letter_bytes', sender, bytes::float8 from dead order by bytes desc limit 1)
      )
      select used.what, used.used, encode(m.peer_key, 'hex') as "peerKey"
      from used join member m on m.mesh_id = ${meshId}::uuid and m.peer_no = used.peer`,
  )
}
