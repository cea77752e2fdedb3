import { type Database, DatabaseError, openDatabase } from '@sealpost/db'
import { OperatingError } from '@sealpost/std'
import type { Shell } from './shell.ts'

/** For commands that work on the database itself. @throws OperatingError `database_forbids`, DatabaseError */
export async function withDatabase<T>({ settings }: Shell, use: (db: Database) => Promise<T>): Promise<T> {
  const db = await openDatabase(settings.operatorDatabaseUrl(), { connections: 1, applicationName: 'sealpost' })
  try {
    return await use(db)
  } catch (error) {
    throw error instanceof DatabaseError && error.sqlstate === FORBIDDEN ? forbidden() : error
  } finally {
    await db.close()
  }
}

const FORBIDDEN = '42501'
const forbidden = () =>
  new OperatingError(
    'database_forbids',
    'This database account may not do that: set ADMIN_DATABASE_URL to one of the role sealpost_admin.',
  )
