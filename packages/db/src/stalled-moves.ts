/** Moves whose mover is gone while the mesh is active in neither cell: nobody can send until the move is run again. */
import type { Millis } from '@sealpost/std'
import type { Database } from './connect.ts'

export interface StalledMoves {
  readonly count: number
  /** Since the freeze of the oldest one; 0 without any. */
  readonly oldestMs: Millis
}

/** A mover holds the lock of its mesh (`mover-link.ts`) for as long as it lives. @throws DatabaseError */
export async function lookAtStalledMoves(db: Database): Promise<StalledMoves> {
  const [row] = await db.run(
    (sql) => sql<StalledMoves[]>`
      select count(*)::int as count,
        coalesce(extract(epoch from clock_timestamp() - min(m.frozen_at)) * 1000, 0)::float8 as "oldestMs"
      from mesh_move v join mesh m using (mesh_id)
      where v.side = 'source' and v.phase in ('frozen', 'copied', 'left') and m.frozen_at is not null
        and not exists (
          select from pg_locks l
          where l.locktype = 'advisory' and l.granted and l.objsubid = 1
            and l.database = (select oid from pg_database where datname = current_database())
            and (l.classid::bigint << 32 | l.objid::bigint)
              = ('x' || substr(replace(m.mesh_id::text, '-', ''), 1, 16))::bit(64)::bigint)`,
  )
  return row!
}
