/**
 * Which life of the database this is. A restored backup begins a new one: what was acknowledged after it was taken is
 * gone, and peers that hear of the new incarnation say it again. Ids that were given then are not given to other mail.
 */
import type { Database } from './connect.ts'

/**
 * Looks whether this is still the server, and the timeline of it, that the database was on at the last look; if not, a
 * new incarnation begins. 32 hex digits. @throws DatabaseError
 */
export function currentIncarnation(db: Database): Promise<string> {
  return noteOrigin(db, false)
}

/** Begins a new incarnation, after files were copied back without a recovery. Brokers must be started anew. @throws DatabaseError */
export function beginIncarnation(db: Database): Promise<string> {
  return noteOrigin(db, true)
}

async function noteOrigin(db: Database, isRestored: boolean): Promise<string> {
  const [row] = await db.run((sql) => sql<{ incarnation: string }[]>`select note_origin(${isRestored}) as incarnation`)
  return row!.incarnation.replaceAll('-', '')
}
