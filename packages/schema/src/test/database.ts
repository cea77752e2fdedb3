/** For tests: a new database with the current schema, in about 30 ms. */
import { type Database, type DatabaseOptions, openDatabase } from '@sealpost/pg'
import { copyDatabase, type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import { afterAll, inject } from 'vitest'

/** Copies the migrated template. Only `.pg.test.ts` and `.e2e.test.ts` files have a server. */
export function scratchDatabase(): Promise<ScratchDatabase> {
  return copyDatabase(inject('sealpostTestServer').prefix)
}

/** Opens one for all tests of a file, and drops it afterwards. Call it at the top of the file. */
export async function databaseOfFile(options: Pick<DatabaseOptions, 'connections'> = {}): Promise<Database> {
  const scratch = await scratchDatabase()
  const db = await openDatabase(scratch.url, { ...unhurried, ...options })
  afterAll(async () => {
    await db.close()
    await scratch.drop()
  })
  return db
}
