/** `sealpost db` migrates the database, prints its roles, and starts a new incarnation after a restore. */
import { type Database, DatabaseError, openDatabase } from '@sealpost/pg'
import { migrate, prepareDatabase, type RoleLogin, roleStatements } from '@sealpost/schema'
import { OperatingError } from '@sealpost/std'
import { beginIncarnation } from '@sealpost/store'
import { Command } from 'commander'
import { examples, type RunAction, type Shell } from '../shell.ts'

export function dbCommand(run: RunAction): Command {
  return new Command('db')
    .description('For operators: maintain the database')
    .addCommand(migrateCommand(run))
    .addCommand(prepareCommand(run))
    .addCommand(rolesCommand(run))
    .addCommand(restoredCommand(run))
    .addHelpText(
      'after',
      examples('sealpost db migrate', 'sealpost db roles | psql -d sealpost', 'sealpost db restored'),
    )
}

function migrateCommand(run: RunAction): Command {
  return new Command('migrate')
    .description('Migrate the database, as the account that owns it. The command needs DATABASE_URL.')
    .addHelpText('after', examples('DATABASE_URL=postgres://owner@db/sealpost sealpost db migrate'))
    .action(run(bringUpToDate))
}

function prepareCommand(run: RunAction): Command {
  return new Command('prepare')
    .description(
      'Migrate the database, create its roles, and create a login for each user in BROKER_DATABASE_URL, ADMIN_DATABASE_URL and SENDER_DATABASE_URL. DATABASE_URL must name a superuser.',
    )
    .addHelpText('after', examples('sealpost db prepare'))
    .action(run(prepare))
}

function rolesCommand(run: RunAction): Command {
  return new Command('roles')
    .description('Print the SQL that creates roles with minimal rights, for a superuser to run')
    .addHelpText('after', examples('sealpost db roles | psql -v ON_ERROR_STOP=1 -d sealpost'))
    .action(run(printRoles))
}

function restoredCommand(run: RunAction): Command {
  return new Command('restored')
    .description(
      'Start a new incarnation after you have restored the database files without a Postgres recovery. The command needs DATABASE_URL.',
    )
    .addHelpText('after', examples('sealpost db restored'))
    .action(run(begin))
}

async function bringUpToDate({ settings, output }: Shell): Promise<void> {
  await migrate(settings.databaseUrl())
  await output.result({ isCurrent: true }, () => 'the database is up to date')
}

async function prepare({ settings, output }: Shell): Promise<void> {
  const urls = {
    broker: settings.brokerDatabaseUrl(),
    admin: settings.adminDatabaseUrl(),
    sender: settings.senderDatabaseUrl(),
  }
  const logins = Object.entries(urls).flatMap(([role, url]) => (url ? [{ role, url } as RoleLogin] : []))
  if (logins.length === 0)
    throw new OperatingError(
      'usage',
      'Set at least one of BROKER_DATABASE_URL, ADMIN_DATABASE_URL and SENDER_DATABASE_URL: this command creates the login of each.',
    )
  await prepareDatabase(settings.databaseUrl(), logins)
  const roles = logins.map(({ role }) => `sealpost_${role}`)
  await output.result(
    { isCurrent: true, roles },
    () => `the database is up to date; the logins of ${roles.join(' and ')} work`,
  )
}

async function printRoles({ output }: Shell): Promise<void> {
  const statements = roleStatements()
  await output.result({ statements }, () => [...statements.map((statement) => `${statement};`), LOGIN].join('\n'))
}

const LOGIN = `-- A login for a broker, and its password: CREATE ROLE broker LOGIN IN ROLE sealpost_broker; \\password broker`

async function begin(shell: Shell): Promise<void> {
  const incarnation = await withDatabase(shell, beginIncarnation)
  await shell.output.result(
    { incarnation },
    () => `started incarnation ${incarnation}; running brokers adopt it within ten seconds`,
  )
}

/**
 * Runs `use` on an operator's connection. @throws OperatingError `database_forbids`, `database_not_migrated`,
 * DatabaseError
 */
export async function withDatabase<T>({ settings }: Shell, use: (db: Database) => Promise<T>): Promise<T> {
  const db = await openDatabase(settings.operatorDatabaseUrl(), { connections: 1, applicationName: 'sealpost' })
  try {
    return await use(db)
  } catch (error) {
    throw error instanceof DatabaseError ? (sentences[error.sqlstate ?? '']?.() ?? error) : error
  } finally {
    await db.close()
  }
}

/** Errors by SQLSTATE. */
const sentences: Readonly<Record<string, () => OperatingError>> = {
  '42501': () =>
    new OperatingError(
      'database_forbids',
      'This database account lacks the rights. Set ADMIN_DATABASE_URL to an account with the role sealpost_admin.',
    ),
  '42P01': () =>
    new OperatingError(
      'database_not_migrated',
      'This database does not have the tables of this version: start a broker on it, or run `sealpost db migrate`.',
    ),
}
