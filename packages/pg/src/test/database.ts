/** Creates databases for tests on the server of the run. */
import { randomUUID } from 'node:crypto'
import { inject } from 'vitest'
import type { DatabaseError } from '../database-error.ts'
import { withDatabaseName } from '../database-url.ts'
import { type Database, type DatabaseOptions, openDatabase } from '../pool.ts'

const DEADLOCK = '40P01'

declare module 'vitest' {
  interface ProvidedContext {
    /** The server's URL, and the prefix of its databases' names, which is also the template's name. */
    sealpostTestServer: { url: string; prefix: string }
  }
}

export interface ScratchDatabase {
  url: string
  /** Ends all connections to the database and drops it. */
  drop(): Promise<void>
}

/** Options for tests on a busy machine: long timeouts, and no probes that close a slow connection. */
export const unhurried = {
  connectTimeoutMs: 60_000,
  statementTimeoutMs: 60_000,
  queryTimeoutMs: 61_000,
  probeMs: 3_600_000,
  settings: { lock_timeout: '60s', idle_in_transaction_session_timeout: 0 },
} satisfies DatabaseOptions

export function emptyDatabase(): Promise<ScratchDatabase> {
  return copyDatabase('template0')
}

/**
 * Copies a database to which nothing is connected. `rights` returns grants for the copy, because they are not copied.
 */
export async function copyDatabase(template: string, rights?: (name: string) => string): Promise<ScratchDatabase> {
  const server = inject('sealpostTestServer')
  const name = `${server.prefix}_${randomUUID().slice(0, 8)}`
  await onServer(server.url, [`create database ${name} template ${template}`, ...(rights ? [rights(name)] : [])])
  const url = withDatabaseName(server.url, name)
  return { url, drop: () => onServer(server.url, [`drop database if exists ${name} with (force)`]) }
}

async function onServer(url: string, statements: readonly string[]): Promise<void> {
  const db = await openDatabase(url, { connections: 1, ...unhurried })
  try {
    for (const statement of statements) await runAgain(db, statement)
  } finally {
    await db.close()
  }
}

/** Repeats a statement after a deadlock, which concurrent changes of databases and roles can cause. */
async function runAgain(db: Database, statement: string, attempts = 5): Promise<void> {
  try {
    await db.run((sql) => sql.unsafe(statement))
  } catch (error) {
    if (attempts === 1 || (error as DatabaseError).sqlstate !== DEADLOCK) throw error
    await runAgain(db, statement, attempts - 1)
  }
}
