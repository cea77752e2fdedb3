/** The server's plan for the claim, to diagnose slow claims. */
import { type Database, openDatabase } from '@sealpost/pg'
import { CLAIM, SESSION } from '../sql/sql.ts'

const QUEUE_KEY = 'message_queue_mesh_id_recipient_priority_id_pk'

export interface ClaimPlan {
  /** It walks the queue's primary key, and reads no table from end to end. */
  readonly isGood: boolean
  /** Tables that it reads from end to end. */
  readonly scanned: readonly string[]
  readonly text: string
}

/** As a broker's connections make it; nothing is claimed. @throws DatabaseError */
export async function claimPlanOf(databaseUrl: string): Promise<ClaimPlan> {
  const db = await openDatabase(databaseUrl, { connections: 1, applicationName: 'sealpost doctor', settings: SESSION })
  try {
    const text = await explain(db)
    // The list of meshes is read as a whole: it is one row for each.
    const scanned = [...text.matchAll(/Seq Scan on (\w+)/g)]
      .map(([, table]) => table!)
      .filter((name) => name !== 'mesh')
    return { isGood: scanned.length === 0 && text.includes(`using ${QUEUE_KEY}`), scanned, text }
  } finally {
    await db.close()
  }
}

async function explain(db: Database): Promise<string> {
  const count = Math.max(...[...CLAIM.matchAll(/\$(\d+)/g)].map((match) => Number(match[1])))
  const nothing = Array.from({ length: count }, () => 'null').join()
  // Sent as one, so that `explain` runs on the connection that prepared the statement.
  const steps = `prepare sealpost_claim as ${CLAIM}; explain (costs off) execute sealpost_claim(${nothing}); deallocate sealpost_claim`
  const rows = await db.run((sql) => sql.unsafe(steps).simple())
  return (rows.flat() as { 'QUERY PLAN'?: string }[]).map((row) => row['QUERY PLAN'] ?? '').join('\n')
}
