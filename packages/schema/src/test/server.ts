/**
 * The Postgres server of one vitest run (its `globalSetup`): an embedded one, or the one that DATABASE_URL names.
 * Creates a migrated template database once, and drops everything that the run created on a server of yours.
 */
import { randomUUID } from 'node:crypto'
import { startEmbedded } from '@sealpost/embedded-pg'
import { openDatabase, withDatabaseName } from '@sealpost/pg'
import type { TestProject } from 'vitest/node'
import { migrate } from '../migrate.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** Where the run's server is, and the prefix of every database of the run; the template is the prefix itself. */
    sealpostTestServer: { url: string; prefix: string }
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const given = process.env.DATABASE_URL
  const embedded = given
    ? undefined
    : await startEmbedded({ settings: { shared_preload_libraries: 'pg_stat_statements', max_connections: '500' } })
  const url = given ?? (embedded?.url as string)
  const prefix = `sealpost_test_${randomUUID().slice(0, 8)}`
  await makeTemplate(url, prefix)
  project.provide('sealpostTestServer', { url, prefix })
  return async () => {
    if (embedded) await embedded.stop()
    else await dropAll(url, prefix)
  }
}

async function makeTemplate(url: string, template: string): Promise<void> {
  const db = await openDatabase(url, { connections: 1, statementTimeoutMs: 60_000, queryTimeoutMs: 60_000 })
  await db.run((sql) => sql.unsafe(`create database ${template}`))
  await migrate(withDatabaseName(url, template))
  // A copy fails while any session, even autovacuum, is connected to its source.
  await db.run((sql) => sql.unsafe(`alter database ${template} allow_connections false`))
  await db.close()
}

async function dropAll(url: string, prefix: string): Promise<void> {
  const db = await openDatabase(url, { connections: 1, statementTimeoutMs: 60_000, queryTimeoutMs: 60_000 })
  const names = await db.run(
    (sql) => sql<{ datname: string }[]>`select datname from pg_database where starts_with(datname, ${prefix})`,
  )
  for (const { datname } of names) await db.run((sql) => sql.unsafe(`drop database if exists ${datname} with (force)`))
  await db.close()
}
