/** A session that keeps a snapshot open, as a forgotten transaction or a long report does: vacuum removes no row. */
import { openPostgresJs } from '@sealpost/pg'

export const SNAPSHOT_HOLDER = 'sealpost held snapshot'

export interface HeldSnapshot {
  release(): Promise<void>
}

export async function holdSnapshot(databaseUrl: string): Promise<HeldSnapshot> {
  const connection = { application_name: SNAPSHOT_HOLDER, idle_in_transaction_session_timeout: 0 }
  const sql = await openPostgresJs(databaseUrl, { connections: 1, connection })
  await sql`begin isolation level repeatable read`
  await sql`select 1` // the first statement takes the snapshot
  return {
    release: async () => {
      await sql`rollback`
      await sql.end()
    },
  }
}
