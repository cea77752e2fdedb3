/**
 * Provides a command's Postgres: `DATABASE_URL`, or an embedded server that ends with it. Makes backups, starts servers
 * and standbys from them, and holds snapshots open.
 */
import { execFile } from 'node:child_process'
import { chown, rm, stat, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { promisify } from 'node:util'
import { type EmbeddedOptions, type EmbeddedPostgres, startEmbedded } from '@sealpost/embedded-pg'
import { openDatabase, openPostgresJs } from '@sealpost/pg'
import { migrate } from '@sealpost/schema'
import type { Teardown } from './teardown.ts'

export function startOwnPostgres(teardown: Teardown, options: EmbeddedOptions = {}): Promise<EmbeddedPostgres> {
  return teardown.startingProgram(startEmbedded(options))
}

/** Opens the command's database. @returns its URL, with the current schema */
export async function openOwnDatabase(teardown: Teardown): Promise<string> {
  const url = process.env.DATABASE_URL || (await startOwnPostgres(teardown)).url
  await migrate(url)
  return url
}

/**
 * Returns an embedded server's URL for a shell in this folder, which reads the password from its file, so that no
 * terminal shows it.
 */
export function shellUrl({ url, dataDir }: Pick<EmbeddedPostgres, 'url' | 'dataDir'>): string {
  const { username, host, pathname } = new URL(url)
  const path = join(dataDir, 'password')
  const fromHere = relative(process.cwd(), path)
  const passwordFile = fromHere.startsWith('..') ? path : fromHere
  return `"postgres://${username}:$(cat '${passwordFile}')@${host}${pathname}"`
}

const run = promisify(execFile)

/** The role of the server on the copy. */
type Purpose = 'recovery' | 'standby'

/**
 * Copies the server's folder to the new `folder` between `pg_backup_start` and `pg_backup_stop`. `recovery.signal`
 * makes the restored server begin a new timeline, by which brokers notice the restore.
 */
export async function backUp(
  { url, dataDir }: EmbeddedPostgres,
  folder: string,
  purpose: Purpose = 'recovery',
): Promise<void> {
  const db = await openDatabase(url, { connections: 1, queryTimeoutMs: 60_000, statementTimeoutMs: 60_000 })
  try {
    await db.run((sql) => sql`select pg_backup_start('drill', true)`)
    await run('cp', ['-a', dataDir, folder]) // keeps the owner, under whose account the server runs
    const [stopped] = await db.run((sql) => sql<{ labelfile: string }[]>`select labelfile from pg_backup_stop(false)`)
    await run('cp', ['-a', join(dataDir, 'cluster', 'pg_wal'), join(folder, 'cluster')]) // the WAL of the copy
    for (const name of ['postmaster.pid', 'postmaster.opts']) await rm(join(folder, 'cluster', name), { force: true })
    await write(folder, 'backup_label', stopped!.labelfile)
    await write(folder, `${purpose}.signal`, '')
  } finally {
    await db.close()
  }
}

/** Starts a server on a backup. */
export function restore(folder: string): Promise<EmbeddedPostgres> {
  // The copy contains all WAL, so there is no archive.
  return startEmbedded({ dataDir: folder, settings: { restore_command: 'false' } })
}

/** Starts a standby on a backup made for it. It streams from `primary` through the port `through`. */
export function followPrimary(folder: string, primary: EmbeddedPostgres, through: number): Promise<EmbeddedPostgres> {
  const { username, password } = new URL(primary.url)
  const primary_conninfo = `host=127.0.0.1 port=${through} user=${username} password=${password} application_name=${STANDBY}`
  return startEmbedded({ dataDir: folder, settings: { primary_conninfo, wal_retrieve_retry_interval: '100ms' } })
}

/** The standby's name in `synchronous_standby_names`. */
export const STANDBY = 'standby'

async function write(folder: string, name: string, text: string): Promise<void> {
  const path = join(folder, 'cluster', name)
  await writeFile(path, text, { mode: 0o600 })
  const { uid, gid } = await stat(join(folder, 'cluster'))
  await chown(path, uid, gid)
}

export const SNAPSHOT_HOLDER = 'sealpost held snapshot'

/** A session that holds a snapshot, like a forgotten transaction, which keeps dead rows. */
export interface HeldSnapshot {
  release(): Promise<void>
}

export async function holdSnapshot(databaseUrl: string): Promise<HeldSnapshot> {
  const connection = { application_name: SNAPSHOT_HOLDER, idle_in_transaction_session_timeout: 0 }
  const sql = await openPostgresJs(databaseUrl, { connections: 1, connection })
  await sql`begin isolation level repeatable read`
  await sql`select 1` // the first statement takes the snapshot
  return {
    release: async () => {
      await sql`rollback`
      await sql.end()
    },
  }
}
