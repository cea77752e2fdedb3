/**
 * Prepares a database for brokers with minimal privileges: tables, roles, and a login for each account. Needs a
 * superuser. Idempotent, also when several run at once.
 */
import { createHash, createHmac, pbkdf2Sync, randomBytes } from 'node:crypto'
import { openDatabase, parseDatabaseUrl } from '@sealpost/pg'
import { OperatingError } from '@sealpost/std'
import { migrate } from './migrate.ts'
import { roleStatements } from './roles.ts'

export interface RoleLogin {
  readonly role: 'broker' | 'admin'
  /** Its user and password become those of the login. */
  readonly url: string
}

const ADVISORY_LOCK = 0x5ea1_9058
const SCRAM_ROUNDS = 4096
const USER = /^[A-Za-z_][\w.-]{0,62}$/

/** @throws DatabaseError as `migrate`; OperatingError `login_malformed` */
export async function prepareDatabase(ownerUrl: string, logins: readonly RoleLogin[]): Promise<void> {
  const owner = parseDatabaseUrl(ownerUrl)
  const granted = logins.flatMap((login) => loginStatements(login, owner.user))
  await migrate(ownerUrl)
  const db = await openDatabase(ownerUrl, { connections: 1, applicationName: 'sealpost prepare' })
  try {
    const statements = [`select pg_advisory_xact_lock(${ADVISORY_LOCK})`, ...roleStatements(), ...granted]
    await db.run((sql) => sql.unsafe(statements.join(';\n')).simple()) // one transaction
  } finally {
    await db.close()
  }
}

function loginStatements({ role, url }: RoleLogin, owner: string): string[] {
  const { user: name, password } = parseDatabaseUrl(url)
  const refuse = (rule: string): never => {
    throw new OperatingError('login_malformed', `The database URL for the role sealpost_${role} ${rule}.`)
  }
  if (!USER.test(name)) return refuse('must have a user name of letters, digits, _, - and .')
  if (password === '') return refuse('must have a password')
  if (name === owner) return refuse('must not use the account that owns the database')
  return [
    `do $$ begin create role "${name}" login; exception when duplicate_object then null; end $$`,
    `alter role "${name}" login password '${scramVerifier(password)}'`,
    `grant sealpost_${role} to "${name}"`,
  ]
}

/**
 * Returns what the server stores for a password (RFC 5803), so that no statement, and thus no log, contains the
 * password.
 */
function scramVerifier(password: string): string {
  const salt = randomBytes(16)
  const salted = pbkdf2Sync(password.normalize('NFKC'), salt, SCRAM_ROUNDS, 32, 'sha256')
  const keyed = (text: string) => createHmac('sha256', salted).update(text).digest()
  const storedKey = createHash('sha256').update(keyed('Client Key')).digest('base64')
  return `SCRAM-SHA-256$${SCRAM_ROUNDS}:${salt.toString('base64')}$${storedKey}:${keyed('Server Key').toString('base64')}`
}
