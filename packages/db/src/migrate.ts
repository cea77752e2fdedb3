/**
 * Brings a database to the current schema. `drizzle-kit migrate` does the same from the same files and remembers it in
 * the same table; here several brokers may do it at once, since each holds an advisory lock meanwhile.
 */
import { fileURLToPath } from 'node:url'
import { readMigrationFiles } from 'drizzle-orm/migrator'
import { drizzle } from 'drizzle-orm/postgres-js'
import { migrate as applyMigrations } from 'drizzle-orm/postgres-js/migrator'
import { DatabaseError, leavesConnectionWhole, statementError } from './database-error.ts'
import { parseAddress } from './database-url.ts'
import { openLane, type Sql } from './lane.ts'

const folder = fileURLToPath(new URL('../migrations', import.meta.url))
const ADVISORY_LOCK = 0x5ea1_9057

/**
 * @throws DatabaseError `db_url_invalid`, `db_not_done`, `db_refused`, `db_unavailable`, `db_migration_failed`, `db_outdated`,
 *   `db_version_unknown`
 */
export async function migrate(url: string): Promise<void> {
  // One lane is one socket: a transaction whose backend dies can't carry on, on another connection, outside of itself.
  const lane = await openLane(url, { applicationName: 'sealpost migrate', connectTimeoutMs: 5_000, session: {} })
  try {
    if (await isCurrent(lane.driver)) return
    await lane.driver`select pg_advisory_lock(${ADVISORY_LOCK})`
    await applyMigrations(drizzle(lane.driver), { migrationsFolder: folder })
  } catch (error) {
    throw migrationError(error, url)
  } finally {
    await lane.retire() // the lock goes with the connection
  }
}

/**
 * Whether every migration of this version is applied; a newer version may have applied more.
 * @throws DatabaseError `db_version_unknown`
 */
async function isCurrent(sql: Sql): Promise<boolean> {
  const [table] = await sql`select to_regclass('drizzle.__drizzle_migrations') as oid`
  if (table?.oid === null) return false
  const rows = await sql<{ hash: string }[]>`select hash from drizzle.__drizzle_migrations`
  const applied = new Set(rows.map(({ hash }) => hash))
  const own = new Set(readMigrationFiles({ migrationsFolder: folder }).map(({ hash }) => hash))
  if (own.isSubsetOf(applied)) return true
  if (!applied.isSubsetOf(own)) throw new DatabaseError('db_version_unknown', VERSION_UNKNOWN)
  return false
}

const VERSION_UNKNOWN =
  'Another version of Sealpost made the tables of this database, and this version has no migration from them: use an empty database, or the version that made them'

const OUTDATED =
  'The database must be brought up to date, and this account may not do it: run `sealpost db migrate` as its owner'

/** drizzle's error quotes the whole statement and its parameters; the server's own, about a migration, holds neither. */
function migrationError(error: unknown, url: string): Error {
  if (error instanceof DatabaseError) return error
  const cause = (error as Error).cause ?? error
  if (!leavesConnectionWhole(cause)) return statementError(cause, parseAddress(url))
  const { code, message } = cause as { code: string; message: string }
  if (code === '42501') return new DatabaseError('db_outdated', `${OUTDATED} (${message})`, { sqlstate: code })
  return new DatabaseError('db_migration_failed', `A migration failed and was rolled back (${code}: ${message})`, {
    sqlstate: code,
  })
}
