/**
 * Migrates a database to the current schema under an advisory lock, because several brokers may start together.
 * `drizzle-kit migrate` uses the same files and table.
 */
import { join } from 'node:path'
import { DatabaseError, keepsConnection, openConnection, parseAddress, type Sql, statementError } from '@sealpost/pg'
import { readMigrationFiles } from 'drizzle-orm/migrator'

/** The compiled program contains this folder. */
const folder = join(import.meta.dirname, Bun.isStandaloneExecutable ? 'migrations' : '../migrations')
const ADVISORY_LOCK = 0x5ea1_9057

/**
 * Applies all missing migrations. @throws DatabaseError `db_url_invalid`, `db_not_executed`, `db_refused`,
 * `db_unavailable`, `db_migration_failed`, `db_outdated`, `db_version_unknown`
 */
export async function migrate(url: string): Promise<void> {
  // A transaction must not continue on another connection after its backend has died, so use exactly one socket.
  const connection = await openConnection(url, {
    applicationName: 'sealpost migrate',
    connectTimeoutMs: 5_000,
    session: {},
  })
  try {
    if (await isCurrent(connection.driver)) return
    await connection.driver`select pg_advisory_lock(${ADVISORY_LOCK})`
    // Otherwise, new tables of an owner named `sealpost` would be in the schema `sealpost`, which is for functions.
    await connection.driver`select set_config('search_path', 'public', false)`
    await applyMigrations(connection.driver)
  } catch (error) {
    throw migrationError(error, url)
  } finally {
    await connection.close() // releases the lock
  }
}

/** Loads the migrator only if needed, because that takes 20 ms. */
async function applyMigrations(sql: Sql): Promise<void> {
  const { drizzle } = await import('drizzle-orm/postgres-js')
  const migrator = await import('drizzle-orm/postgres-js/migrator')
  await migrator.migrate(drizzle(sql), { migrationsFolder: folder })
}

/**
 * Returns whether every migration of this version, or a newer one, is applied. @throws DatabaseError
 * `db_version_unknown`
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
  "Another version of Sealpost created the tables of this database, and this version can't migrate them: use an empty database or that version"

const OUTDATED =
  'The database needs a migration, but this account lacks the rights: run `sealpost db migrate` as the owner of the database'

/** Returns the server's error, because drizzle's quotes the statement and its parameters. */
function migrationError(error: unknown, url: string): Error {
  if (error instanceof DatabaseError) return error
  const cause = (error as Error).cause ?? error
  if (!keepsConnection(cause)) return statementError(cause, parseAddress(url))
  const { code, message } = cause as { code: string; message: string }
  if (code === '42501') return new DatabaseError('db_outdated', `${OUTDATED} (${message})`, { sqlstate: code })
  return new DatabaseError('db_migration_failed', `A migration failed and was rolled back (${code}: ${message})`, {
    sqlstate: code,
  })
}
