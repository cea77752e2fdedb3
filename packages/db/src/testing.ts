/** For tests: a database of one's own, with the current schema in it, in about 30 ms. */
import { randomBytes, randomUUID } from 'node:crypto'
import type { MeshId, PeerKey, PeerNo } from '@sealpost/std'
import { afterAll, inject } from 'vitest'
import { type Database, type DatabaseOptions, openDatabase } from './connect.ts'
import { withDatabaseName } from './database-url.ts'
import './testing-server.ts'

export interface ScratchDatabase {
  url: string
  /** Ends every connection to it first. */
  drop(): Promise<void>
}

/**
 * For what a test itself asks of a database: it waits for a busy machine rather than fail, and what it holds is not taken
 * from it because it was slow to answer a probe.
 */
export const unhurried = {
  connectTimeoutMs: 60_000,
  statementTimeoutMs: 60_000,
  queryTimeoutMs: 61_000,
  probeMs: 3_600_000,
  settings: { lock_timeout: '60s', idle_in_transaction_session_timeout: 0 },
} satisfies DatabaseOptions

/** A copy of the migrated template; `.pg.test.ts` and `.e2e.test.ts` files only, since only they have a server. */
export function scratchDatabase(): Promise<ScratchDatabase> {
  const { prefix } = inject('sealpostTestServer')
  return makeDatabase(`template ${prefix}`)
}

/** The same, open for all tests of a file, and dropped after them: to be called at its top. */
export async function databaseOfFile(options: Pick<DatabaseOptions, 'connections'> = {}): Promise<Database> {
  const scratch = await scratchDatabase()
  const db = await openDatabase(scratch.url, { ...unhurried, ...options })
  afterAll(async () => {
    await db.close()
    await scratch.drop()
  })
  return db
}

/** A box key as a member publishes it, under a signature that no database looks at. */
export const randomBinding = (peerKey: PeerKey) => ({
  ...{ peerKey, boxKey: randomBytes(32), boxEpoch: 1, notAfterMs: 1_900_000_000_000, signature: randomBytes(64) },
})

/** As if it had joined as a device: under a statement that no database looks at. */
export async function makeDevice(db: Database, meshId: MeshId, peer: PeerNo, person: PeerNo): Promise<void> {
  await db.run(
    (sql) => sql`
      with made as (update member set person = ${person} where mesh_id = ${meshId} and peer_no = ${peer})
      insert into device (mesh_id, peer_no, person, invite_key, statement)
      values (${meshId}, ${peer}, ${person}, ${randomBytes(32)}, '')`,
  )
}

/** A database without any table. */
export function emptyDatabase(): Promise<ScratchDatabase> {
  return makeDatabase('template template0')
}

async function makeDatabase(from: string): Promise<ScratchDatabase> {
  const server = inject('sealpostTestServer')
  const name = `${server.prefix}_${randomUUID().slice(0, 8)}`
  await onServer(server.url, `create database ${name} ${from}`)
  const url = withDatabaseName(server.url, name)
  return { url, drop: () => onServer(server.url, `drop database if exists ${name} with (force)`) }
}

async function onServer(url: string, statement: string): Promise<void> {
  const db = await openDatabase(url, { connections: 1, ...unhurried })
  try {
    await db.run((sql) => sql.unsafe(statement))
  } finally {
    await db.close()
  }
}
