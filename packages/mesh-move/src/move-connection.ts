/**
 * One end of a move: a connection to one cell's database that holds the lock of the mesh while it is open, so that a
 * mesh has one mover at a time. All statements of a move use it, so a mover that lost the lock can do nothing more.
 */
import { type Database, DatabaseError, StreamingConnection } from '@sealpost/pg'
import type { MeshId, Millis } from '@sealpost/std'

/** @throws DatabaseError as `openDatabase` */
export function openMoveConnection(url: string, { connectTimeoutMs = 10_000 } = {}): Promise<StreamingConnection> {
  return StreamingConnection.open(url, { applicationName: 'sealpost mover', connectTimeoutMs, session: SESSION })
}

/** @throws DatabaseError as `openMoveConnection`; `move_in_use`, retryable: another mover works on this mesh */
export async function openLocked(url: string, meshId: MeshId): Promise<StreamingConnection> {
  const connection = await openMoveConnection(url)
  try {
    const [row] = await connection.run<{ isLocked: boolean }>(
      `select pg_try_advisory_lock($1::bit(64)::bigint) as "isLocked"`,
      [lockKey(meshId)],
    )
    if (!row?.isLocked) throw new DatabaseError('move_in_use', 'Another mover works on this mesh', { retryable: true })
    return connection
  } catch (error) {
    await connection.close()
    throw error
  }
}

/**
 * No limit for statements: a copy may take long, and so may the commit after it. A lock is held by short statements of
 * brokers. TCP gives up a peer that fell silent, on both sides.
 */
const SESSION = {
  statement_timeout: 0,
  lock_timeout: 30_000,
  synchronous_commit: 'on',
  tcp_keepalives_idle: 10,
  tcp_keepalives_interval: 5,
  tcp_keepalives_count: 3,
  tcp_user_timeout: 60_000,
  // The statement of a killed mover ends, and with it the lock.
  client_connection_check_interval: 1_000,
}

/** The first 64 bits of the mesh id. `readStalledMoves` computes the same. */
const lockKey = (meshId: MeshId): string =>
  BigInt(`0x${meshId.slice(0, 16)}`)
    .toString(2)
    .padStart(64, '0')

/**
 * Moves without a running mover while the mesh is active in neither cell: no peer can send until the move is run again.
 */
export interface StalledMoves {
  readonly count: number
  /** Since the freeze of the oldest one; 0 without any. */
  readonly oldestMs: Millis
}

/** @throws DatabaseError */
export async function readStalledMoves(db: Database): Promise<StalledMoves> {
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
