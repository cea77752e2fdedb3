/**
 * Which life of the database this is. A restored backup begins a new one: what was acknowledged after it was taken is
 * gone, and peers that hear of the new incarnation say it again. Ids that were given then are not given to other mail.
 */
import { sql } from 'drizzle-orm'
import { auditColumns, auditOf } from './audit.ts'
import type { Database } from './connect.ts'
import { execute } from './drizzle-run.ts'
import { adminAudit } from './schema-admin.ts'

/**
 * Looks whether this is still the server, and the timeline of it, that the database was on at the last look; if not, a
 * new incarnation begins. 32 hex digits. @throws DatabaseError
 */
export async function currentIncarnation(db: Database): Promise<string> {
  const [row] = await db.run((sql) => sql<{ incarnation: string }[]>`select note_origin(false) as incarnation`)
  return row!.incarnation.replaceAll('-', '')
}

/** Begins a new incarnation, after files were copied back without a recovery. Brokers that run follow. @throws DatabaseError */
export async function beginIncarnation(db: Database): Promise<string> {
  const [row] = await execute<{ incarnation: string }>(
    db,
    sql`
      with begun as materialized (
        select replace(note_origin(true)::text, '-', '') as incarnation
      ), audited as (
        insert into ${adminAudit} (${auditColumns})
        select ${auditOf(null, 'database.restored')}, null::uuid, incarnation, 1 from begun
      )
      select incarnation from begun`,
  )
  return row!.incarnation
}
