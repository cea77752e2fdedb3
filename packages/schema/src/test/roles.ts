/** Creates role logins for one test database. Names are random, because roles belong to the server. */
import { randomBytes } from 'node:crypto'
import { openDatabase } from '@sealpost/pg'
import { unhurried } from '@sealpost/pg/testing'
import { ROLES, roleStatements } from '../roles.ts'

/** The URLs of the database for each role. */
type LoginUrls = Readonly<Record<(typeof ROLES)[number], string>>

export interface RoleLogins extends LoginUrls {
  readonly prefix: string
  /** Drops the roles. Call once all connections are closed, but while the database exists. */
  drop(): Promise<void>
}

export async function loginsOf(url: string): Promise<RoleLogins> {
  const prefix = `sealpost_${randomBytes(6).toString('hex')}`
  await onDatabase(url, [
    ...roleStatements(prefix),
    ...ROLES.map((name) => `create role ${prefix}_${name}_login login password '${prefix}' in role ${prefix}_${name}`),
  ])
  const roles = ROLES.flatMap((name) => [`${prefix}_${name}_login`, `${prefix}_${name}`])
  const drop = () =>
    onDatabase(url, [
      `grant ${prefix}_owner to current_user`,
      ...roles.flatMap((role) => [`reassign owned by ${role} to current_user`, `drop owned by ${role}`]),
      ...roles.map((role) => `drop role ${role}`),
    ])
  return { prefix, ...loginUrls(url, prefix), drop }
}

/** Returns a database's URLs for the logins that `loginsOf` created under this prefix. */
export function loginUrls(url: string, prefix: string): LoginUrls {
  const as = (name: string) => {
    const its = new URL(url)
    its.username = `${prefix}_${name}_login`
    its.password = prefix
    return its.href
  }
  return Object.fromEntries(ROLES.map((name) => [name, as(name)])) as LoginUrls
}

async function onDatabase(url: string, statements: readonly string[]): Promise<void> {
  const db = await openDatabase(url, { ...unhurried, connections: 1 })
  try {
    for (const statement of statements) await db.run((sql) => sql.unsafe(statement))
  } finally {
    await db.close()
  }
}
