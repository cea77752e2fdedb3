/** What the command takes from its environment, in one place. */
import { readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { OperatingError } from '@sealpost/std'

export interface Settings {
  /** The folder with a folder for each profile. */
  readonly home: string
  /** Where `up` keeps a broker and its database, unless it is told another place. */
  readonly dataFolder: string
  readonly profile: string
  readonly passphrase: string | undefined
  /** Null: no colours whatever the terminal can do. */
  readonly hasColors: boolean | null
  readonly databaseUrl: () => string
  /** For what operators do with the rows in it: by `ADMIN_DATABASE_URL` where that is set. */
  readonly operatorDatabaseUrl: () => string
  /** Whose users `db prepare` makes. */
  readonly adminDatabaseUrl: () => string | undefined
  readonly brokerDatabaseUrl: () => string | undefined
  /** The path of the file of cells. */
  readonly cellsFile: () => string
  /** For programs started by a command; without the passphrase. */
  readonly environment: Environment
}

export type Environment = Readonly<Record<string, string | undefined>>

/** The variables and what they mean, for the help and the reference page. */
export const variables = [
  { name: 'SEALPOST_PROFILE', meaning: 'the profile, unless --profile names one; `default` without either' },
  { name: 'SEALPOST_HOME', meaning: 'the folder of the profiles; `$XDG_CONFIG_HOME/sealpost` or `~/.config/sealpost`' },
  {
    name: 'SEALPOST_PASSPHRASE',
    meaning: 'the passphrase of locked keys, unless --passphrase-file names a file with it',
  },
  {
    name: 'DATABASE_URL',
    meaning:
      'the database of the broker, for `dead`, `db`, `shard`, `admin token`, `admin mesh create` and `doctor --database`; DATABASE_URL_FILE names a file with it',
  },
  {
    name: 'ADMIN_DATABASE_URL',
    meaning:
      'the same database by an account of `sealpost_admin`, taken before DATABASE_URL for all of these but `db migrate` and `doctor --database`; ADMIN_DATABASE_URL_FILE names a file with it',
  },
  {
    name: 'BROKER_DATABASE_URL',
    meaning:
      'the same database as a broker is to reach it, for `db prepare`; BROKER_DATABASE_URL_FILE names a file with it',
  },
  { name: 'SEALPOST_ADMIN_URL', meaning: 'the private address of a broker, for `admin`, like http://127.0.0.1:7451' },
  {
    name: 'SEALPOST_ADMIN_TOKEN',
    meaning:
      'the token for it; SEALPOST_ADMIN_TOKEN_FILE names a file with it. Both as `sealpost up` left them, without',
  },
  { name: 'CELLS_FILE', meaning: 'the file of cells, for `mesh`, with the addresses of their databases' },
  {
    name: 'NODE_EXTRA_CA_CERTS',
    meaning:
      'a file with certificates of further authorities, as PEM, for a broker whose certificate is of a private one',
  },
  { name: 'NO_COLOR', meaning: 'set to anything: no colours' },
] as const

export function readSettings(environment: Environment = process.env): Settings {
  const folder = (name: string, fallback: string) => environment[name] || join(homedir(), fallback)
  return {
    home: environment.SEALPOST_HOME || join(folder('XDG_CONFIG_HOME', '.config'), 'sealpost'),
    dataFolder: join(folder('XDG_DATA_HOME', '.local/share'), 'sealpost'),
    profile: environment.SEALPOST_PROFILE || 'default',
    hasColors: environment.NO_COLOR ? false : environment.FORCE_COLOR ? true : null,
    databaseUrl: () => databaseUrlOf(environment),
    operatorDatabaseUrl: () => findUrl(environment, 'ADMIN_DATABASE_URL') ?? databaseUrlOf(environment),
    adminDatabaseUrl: () => findUrl(environment, 'ADMIN_DATABASE_URL'),
    brokerDatabaseUrl: () => findUrl(environment, 'BROKER_DATABASE_URL'),
    cellsFile: () => cellsFileOf(environment),
    passphrase: environment.SEALPOST_PASSPHRASE,
    environment: { ...environment, SEALPOST_PASSPHRASE: undefined },
  }
}

/**
 * Secrets by the names that people give them. A program that works on what others send must not be made to print one; the
 * addresses of databases and of NATS hold passwords.
 */
const SECRET =
  /TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(API|ACCESS|PRIVATE|SIGNING|ENCRYPTION)_?KEY|(DATABASE|POSTGRES|NATS|REDIS)_UR[IL]/i

/** The variables for a program that a message starts: without secrets, except for those that `passed` names. */
export const withoutSecrets = (environment: Environment, passed: readonly string[]): Environment =>
  Object.fromEntries(Object.entries(environment).filter(([name]) => passed.includes(name) || !SECRET.test(name)))

type UrlName = 'DATABASE_URL' | 'ADMIN_DATABASE_URL' | 'BROKER_DATABASE_URL'

/** @throws OperatingError `usage`, which never repeats the value: it holds a password */
function databaseUrlOf(environment: Environment): string {
  const url = findUrl(environment, 'DATABASE_URL')
  if (url) return url
  throw new OperatingError(
    'usage',
    'DATABASE_URL is not set: it names the database to look into; `sealpost up` prints that of its own.',
  )
}

/** @throws OperatingError `usage` */
function findUrl(environment: Environment, name: UrlName): string | undefined {
  const file = environment[`${name}_FILE`]
  if (environment[name] || !file) return environment[name] || undefined
  try {
    return readFileSync(file, 'utf8').trim()
  } catch (cause) {
    throw new OperatingError('usage', `${name}_FILE names a file that can't be read.`, { cause })
  }
}

/** @throws OperatingError `usage` */
function cellsFileOf({ CELLS_FILE }: Environment): string {
  if (CELLS_FILE) return CELLS_FILE
  throw new OperatingError('usage', 'CELLS_FILE is not set: it names the file of cells.')
}
