/** A session that keeps a snapshot open, as a forgotten transaction or a long report does: no row may be cleaned up. */
import { openDriver } from '@sealpost/db'

export const HOLD_NAME = 'sealpost held snapshot'

export interface HeldSnapshot {
  release(): Promise<void>
}

export async function holdSnapshot(databaseUrl: string): Promise<HeldSnapshot> {
  const connection = { application_name: HOLD_NAME, idle_in_transaction_session_timeout: 0 }
  const sql = await openDriver(databaseUrl, { connections: 1, connection })
  await sql`begin isolation level repeatable read`
  await sql`select 1` // the first statement takes the snapshot
  return {
    release: async () => {
      await sql`rollback`
      await sql.end()
    },
  }
}
