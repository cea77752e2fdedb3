import { type Database, openDatabase } from '@sealpost/db'
import type { Shell } from './shell.ts'

/** For commands that work on the database itself. */
export async function withDatabase<T>({ settings }: Shell, use: (db: Database) => Promise<T>): Promise<T> {
  const db = await openDatabase(settings.databaseUrl(), { connections: 1, applicationName: 'sealpost' })
  try {
    return await use(db)
  } finally {
    await db.close()
  }
}
