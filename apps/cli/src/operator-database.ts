import { type Database, DatabaseError, openDatabase } from '@sealpost/db'
import { OperatingError } from '@sealpost/std'
import type { Shell } from './shell.ts'

/** For commands that work on the database itself. @throws OperatingError `database_forbids`, `database_not_migrated`, DatabaseError */
export async function withDatabase<T>({ settings }: Shell, use: (db: Database) => Promise<T>): Promise<T> {
  const db = await openDatabase(settings.operatorDatabaseUrl(), { connections: 1, applicationName: 'sealpost' })
  try {
    return await use(db)
  } catch (error) {
    throw error instanceof DatabaseError ? (sentences[error.sqlstate ?? '']?.() ?? error) : error
  } finally {
    await db.close()
  }
}

/** By SQLSTATE. */
const sentences: Readonly<Record<string, () => OperatingError>> = {
  '42501': () =>
    new OperatingError(
      'database_forbids',
      'This database account may not do that: set ADMIN_DATABASE_URL to one of the role sealpost_admin.',
    ),
  '42P01': () =>
    new OperatingError(
      'database_not_migrated',
      'This database does not have the tables of this version: start a broker on it, or run `sealpost db migrate`.',
    ),
}
