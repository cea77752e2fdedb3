/** Creates a database with the current schema for tests, in about 30 ms. */
import { type Database, type DatabaseOptions, openDatabase } from '@sealpost/pg'
import { copyDatabase, type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import { afterAll, inject } from 'vitest'
import { ROLES } from '../roles.ts'
import { loginUrls } from './roles.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** The template with roles, and the prefix of their names. */
    sealpostTestRoles: { template: string; prefix: string }
  }
}

/** Copies the migrated template. Only `.pg.test.ts` and `.e2e.test.ts` files have a server. */
export function scratchDatabase(): Promise<ScratchDatabase> {
  return copyDatabase(inject('sealpostTestServer').prefix)
}

/**
 * Copies the template whose roles and logins all databases of the run share, because creating roles costs four times as
 * much as a database. Tests about roles call `loginsOf` instead.
 */
export async function scratchWithLogins(): Promise<ScratchDatabase & ReturnType<typeof loginUrls>> {
  const { template, prefix } = inject('sealpostTestRoles')
  const roles = ROLES.map((name) => `${prefix}_${name}`).join(', ')
  const scratch = await copyDatabase(
    template,
    (name) =>
      `revoke all on database ${name} from public; grant connect on database ${name} to ${roles}; grant create on database ${name} to ${prefix}_owner`,
  )
  return { ...scratch, ...loginUrls(scratch.url, prefix) }
}

/** Opens a database for all tests of a file. Call at the top of the file. */
export async function databaseOfFile(options: Pick<DatabaseOptions, 'connections'> = {}): Promise<Database> {
  const scratch = await scratchDatabase()
  const db = await openDatabase(scratch.url, { ...unhurried, ...options })
  afterAll(async () => {
    await db.close()
    await scratch.drop()
  })
  return db
}
