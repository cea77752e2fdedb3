/**
 * Provides the Postgres server of a vitest run as its `globalSetup`: embedded, or at DATABASE_URL, where it drops all
 * databases and roles of the run.
 */
import { randomUUID } from 'node:crypto'
import { startEmbedded } from '@sealpost/embedded-pg'
import { openDatabase, withDatabaseName } from '@sealpost/pg'
import type { TestProject } from 'vitest/node'
import { migrate } from '../migrate.ts'
import { loginsOf, type RoleLogins } from './roles.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** The template with roles, and the prefix of their names. */
    sealpostTestRoles: { template: string; prefix: string }
    /** The run's server, and the prefix of its databases' names, which is also the template's name. */
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
  const withRoles = `${prefix}_roles`
  const logins = await makeTemplates(url, prefix, withRoles)
  project.provide('sealpostTestServer', { url, prefix })
  project.provide('sealpostTestRoles', { template: withRoles, prefix: logins.prefix })
  return async () => {
    if (embedded) await embedded.stop()
    else await dropAll(url, { prefix, withRoles, logins })
  }
}

async function makeTemplates(url: string, template: string, withRoles: string): Promise<RoleLogins> {
  const db = await openDatabase(url, { connections: 1, statementTimeoutMs: 60_000, queryTimeoutMs: 60_000 })
  await db.run((sql) => sql.unsafe(`create database ${template}`))
  await migrate(withDatabaseName(url, template))
  // A copy fails while any session is connected to the template, even autovacuum.
  await db.run((sql) => sql.unsafe(`alter database ${template} allow_connections false`))
  await db.run((sql) => sql.unsafe(`create database ${withRoles} template ${template}`))
  const logins = await loginsOf(withDatabaseName(url, withRoles))
  await db.run((sql) => sql.unsafe(`alter database ${withRoles} allow_connections false`))
  await db.close()
  return logins
}

interface Made {
  readonly prefix: string
  readonly withRoles: string
  readonly logins: RoleLogins
}

/** Drops the databases first, because a role with privileges can't be dropped. */
async function dropAll(url: string, { prefix, withRoles, logins }: Made): Promise<void> {
  const db = await openDatabase(url, { connections: 1, statementTimeoutMs: 60_000, queryTimeoutMs: 60_000 })
  const drop = (name: string) => db.run((sql) => sql.unsafe(`drop database if exists ${name} with (force)`))
  const names = await db.run(
    (sql) => sql<{ datname: string }[]>`select datname from pg_database where starts_with(datname, ${prefix})`,
  )
  for (const { datname } of names) if (datname !== withRoles) await drop(datname)
  await db.run((sql) => sql.unsafe(`alter database ${withRoles} allow_connections true`))
  await logins.drop()
  await drop(withRoles)
  await db.close()
}
