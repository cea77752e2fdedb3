/** Checks whether a server can keep promise P1: an ack means committed and on disk. */
import { DatabaseError } from './database-error.ts'
import type { Database } from './pool.ts'

export interface ServerFacts {
  version: string
  fsync: true
  synchronousCommit: 'on'
  durability: 'fsync'
}

interface Settings {
  version: string
  versionNumber: number
  fsync: string
  fullPageWrites: string
  synchronousCommit: string
  isStandby: boolean
}

/** @throws DatabaseError `db_too_old`, `db_fsync_off`, `db_full_page_writes_off`, `db_commit_unsynced`, `db_standby` */
export async function checkServer(db: Database): Promise<ServerFacts> {
  const [row] = await db.run(
    (sql) => sql<Settings[]>`
      select current_setting('server_version') as version,
             current_setting('server_version_num')::int as "versionNumber",
             current_setting('fsync') as fsync,
             current_setting('full_page_writes') as "fullPageWrites",
             current_setting('synchronous_commit') as "synchronousCommit",
             pg_is_in_recovery() as "isStandby"`,
  )
  const settings = row as Settings
  const version = settings.version.split(' ')[0] ?? settings.version
  const fault = findFault({ ...settings, version })
  if (fault) throw new DatabaseError(...fault)
  return { version, fsync: true, synchronousCommit: 'on', durability: 'fsync' }
}

function findFault(server: Settings): [code: string, sentence: string] | undefined {
  if (server.versionNumber < 150_000) {
    return ['db_too_old', `Sealpost needs PostgreSQL 15 or newer; this server has ${server.version}`]
  }
  if (server.isStandby) return ['db_standby', 'This Postgres server is a read-only standby; Sealpost needs the primary']
  if (server.fsync !== 'on') {
    return [
      'db_fsync_off',
      'This Postgres server runs with fsync=off: a power failure would lose acknowledged messages',
    ]
  }
  if (server.fullPageWrites !== 'on') {
    return [
      'db_full_page_writes_off',
      'This Postgres server runs with full_page_writes=off: a power failure could corrupt its pages',
    ]
  }
  if (server.synchronousCommit !== 'on') {
    const sentence = `synchronous_commit is "${server.synchronousCommit}" on this connection and must be "on"; the database URL or a pooler may set it`
    return ['db_commit_unsynced', sentence]
  }
  return undefined
}
