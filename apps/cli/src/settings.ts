/** Reads the command's settings from its environment. */
import { readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { isHex, OperatingError } from '@sealpost/std'
import { InvalidArgumentError, Option } from 'commander'

export interface Settings {
  /** The folder of the profiles. */
  readonly home: string
  /** The default data folder of `up`. */
  readonly dataFolder: string
  /** Where the compiled program unpacks PostgreSQL. */
  readonly cacheFolder: string
  readonly profile: string
  readonly passphrase: string | undefined
  /** Whether envelopes are padded. @throws OperatingError `usage` */
  readonly padding: () => boolean
  /** Null: depends on the terminal. */
  readonly hasColors: boolean | null
  readonly databaseUrl: () => string
  /** The login for operators' commands, by default the broker's. */
  readonly operatorDatabaseUrl: () => string
  /** The logins that `db prepare` creates. */
  readonly adminDatabaseUrl: () => string | undefined
  readonly brokerDatabaseUrl: () => string | undefined
  readonly senderDatabaseUrl: () => string | undefined
  readonly cellsFile: () => string
  /** Child programs' environment, without the passphrase. */
  readonly environment: EnvironmentVariables
}

export type EnvironmentVariables = Readonly<Record<string, string | undefined>>

/** The variables in the help and the reference page. */
export const variables = [
  { name: 'SEALPOST_PROFILE', meaning: 'the profile to use; --profile overrides it; default: `default`' },
  {
    name: 'SEALPOST_HOME',
    meaning: 'the folder that contains the profiles; default: `$XDG_CONFIG_HOME/sealpost` or `~/.config/sealpost`',
  },
  {
    name: 'SEALPOST_PASSPHRASE',
    meaning: 'the passphrase of encrypted keys; --passphrase-file overrides it',
  },
  {
    name: 'SEALPOST_PADDING',
    meaning:
      '`on` pads messages, so that a broker sees only a bucket of their sizes; `off` sends them in their own size; default: `on`. It applies to the command that opens the connection of the profile',
  },
  {
    name: 'DATABASE_URL',
    meaning:
      "the URL of the broker's database, for `dead`, `db`, `shard`, `admin token`, `admin mesh create` and `doctor --database`; or set DATABASE_URL_FILE to a file that contains the URL",
  },
  {
    name: 'ADMIN_DATABASE_URL',
    meaning:
      'the URL of the same database for an account with the role `sealpost_admin`; or set ADMIN_DATABASE_URL_FILE. These commands use it instead of DATABASE_URL, except `db migrate` and `doctor --database`',
  },
  {
    name: 'BROKER_DATABASE_URL',
    meaning:
      'the URL with which a broker connects to the same database, for `db prepare`; or set BROKER_DATABASE_URL_FILE',
  },
  {
    name: 'SENDER_DATABASE_URL',
    meaning:
      'the URL with which an application that calls `sealpost.send` connects to the same database, for `db prepare`; or set SENDER_DATABASE_URL_FILE',
  },
  {
    name: 'SEALPOST_ADMIN_URL',
    meaning: 'the private URL of a broker, such as http://127.0.0.1:7451, for the `admin` commands',
  },
  {
    name: 'SEALPOST_ADMIN_TOKEN',
    meaning:
      "the operator's token for this broker; or set SEALPOST_ADMIN_TOKEN_FILE. If these variables are not set, the `admin` commands use the URL and the token of `sealpost up`",
  },
  {
    name: 'CELLS_FILE',
    meaning: 'the file that lists the cells and the URLs of their databases, for the `mesh` commands',
  },
  {
    name: 'XDG_CACHE_HOME',
    meaning:
      'the cache folder; the compiled `up` unpacks PostgreSQL into its subfolder `sealpost`; default: `~/.cache`',
  },
  {
    name: 'NODE_EXTRA_CA_CERTS',
    meaning:
      'a PEM file of additional certificate authorities, for a broker whose certificate comes from a private authority',
  },
  { name: 'NO_COLOR', meaning: 'if set, disables colours' },
] as const

export function readSettings(environment: EnvironmentVariables = process.env): Settings {
  const folder = (name: string, fallback: string) => environment[name] || join(homedir(), fallback)
  return {
    home: environment.SEALPOST_HOME || join(folder('XDG_CONFIG_HOME', '.config'), 'sealpost'),
    dataFolder: join(folder('XDG_DATA_HOME', '.local/share'), 'sealpost'),
    cacheFolder: join(folder('XDG_CACHE_HOME', '.cache'), 'sealpost'),
    profile: environment.SEALPOST_PROFILE || 'default',
    hasColors: environment.NO_COLOR ? false : environment.FORCE_COLOR ? true : null,
    databaseUrl: () => databaseUrlOf(environment),
    operatorDatabaseUrl: () => findUrl(environment, 'ADMIN_DATABASE_URL') ?? databaseUrlOf(environment),
    adminDatabaseUrl: () => findUrl(environment, 'ADMIN_DATABASE_URL'),
    brokerDatabaseUrl: () => findUrl(environment, 'BROKER_DATABASE_URL'),
    senderDatabaseUrl: () => findUrl(environment, 'SENDER_DATABASE_URL'),
    cellsFile: () => cellsFileOf(environment),
    passphrase: environment.SEALPOST_PASSPHRASE,
    padding: () => isPadding(environment),
    environment: { ...environment, SEALPOST_PASSPHRASE: undefined },
  }
}

/**
 * The variables that a message's program receives. It handles others' input, which must not make it print a secret, so
 * this is a list of what may be passed.
 */
const PASSED = new Set([
  ...['PATH', 'HOME', 'USER', 'LOGNAME', 'SHELL', 'PWD', 'TMPDIR', 'TZ', 'LANG', 'LANGUAGE'],
  ...['TERM', 'COLORTERM', 'COLUMNS', 'LINES', 'NO_COLOR', 'FORCE_COLOR'],
  ...['LC_ALL', 'LC_COLLATE', 'LC_CTYPE', 'LC_MESSAGES', 'LC_MONETARY', 'LC_NUMERIC', 'LC_TIME', 'LC_ADDRESS'],
  ...['LC_IDENTIFICATION', 'LC_MEASUREMENT', 'LC_NAME', 'LC_PAPER', 'LC_TELEPHONE', '__CF_USER_TEXT_ENCODING'],
  ...['XDG_CONFIG_HOME', 'XDG_DATA_HOME', 'XDG_STATE_HOME', 'XDG_CACHE_HOME', 'XDG_RUNTIME_DIR'],
  ...['DISPLAY', 'WAYLAND_DISPLAY', 'DBUS_SESSION_BUS_ADDRESS'],
  ...['SEALPOST_HOME', 'SEALPOST_PROFILE', 'SEALPOST_PADDING', 'NODE_EXTRA_CA_CERTS'],
])
/** The same for Windows, where the case of names varies. */
const PASSED_ON_WINDOWS = new Set([
  ...['SYSTEMROOT', 'SYSTEMDRIVE', 'WINDIR', 'COMSPEC', 'PATH', 'PATHEXT', 'TEMP', 'TMP', 'OS'],
  ...[
    'PROCESSOR_ARCHITECTURE',
    'NUMBER_OF_PROCESSORS',
    'USERNAME',
    'USERPROFILE',
    'HOMEDRIVE',
    'HOMEPATH',
    'APPDATA',
    'LOCALAPPDATA',
  ],
  ...['ALLUSERSPROFILE', 'PUBLIC', 'PROGRAMDATA', 'PROGRAMFILES', 'PROGRAMFILES(X86)', 'PROGRAMW6432'],
  ...['COMMONPROGRAMFILES', 'COMMONPROGRAMFILES(X86)', 'COMMONPROGRAMW6432', 'PSMODULEPATH'],
])

/** Returns the environment of a message's program, with the variables in `named`. */
export function environmentForExec(
  environment: EnvironmentVariables,
  named: readonly string[],
  platform: NodeJS.Platform = process.platform,
): EnvironmentVariables {
  const isPassed = (name: string) =>
    PASSED.has(name) || named.includes(name) || (platform === 'win32' && PASSED_ON_WINDOWS.has(name.toUpperCase()))
  return Object.fromEntries(Object.entries(environment).filter(([name]) => isPassed(name)))
}

function isPadding({ SEALPOST_PADDING: text }: EnvironmentVariables): boolean {
  if (text && text !== 'on' && text !== 'off')
    throw new OperatingError('usage', 'SEALPOST_PADDING must be `on` or `off`.')
  return text !== 'off'
}

type UrlName = 'DATABASE_URL' | 'ADMIN_DATABASE_URL' | 'BROKER_DATABASE_URL' | 'SENDER_DATABASE_URL'

/** Returns the database URL. @throws OperatingError `usage`, without the value, which contains a password */
function databaseUrlOf(environment: EnvironmentVariables): string {
  const url = findUrl(environment, 'DATABASE_URL')
  if (url) return url
  throw new OperatingError(
    'usage',
    "DATABASE_URL is not set. Set it to the URL of the broker's database; `sealpost up` prints the URL of its database.",
  )
}

/** Returns a URL from the environment. @throws OperatingError `usage` */
function findUrl(environment: EnvironmentVariables, name: UrlName): string | undefined {
  const file = environment[`${name}_FILE`]
  if (environment[name] || !file) return environment[name] || undefined
  try {
    return readFileSync(file, 'utf8').trim()
  } catch (cause) {
    throw new OperatingError('usage', `Can't read the file in ${name}_FILE.`, { cause })
  }
}

/** Returns the path of the file of cells. @throws OperatingError `usage` */
function cellsFileOf({ CELLS_FILE }: EnvironmentVariables): string {
  if (CELLS_FILE) return CELLS_FILE
  throw new OperatingError('usage', 'CELLS_FILE is not set. Set it to the path of the file that lists the cells.')
}

const SECONDS = { s: 1, m: 60, h: 3600, d: 86_400 } as const
const DURATION = /^(\d{1,9})([smhd])?$/

/** Parses `30s`, `5m`, `2h`, `14d` or plain seconds into seconds. */
export function parseDuration(text: string): number {
  const [, digits, unit = 's'] = DURATION.exec(text) ?? []
  if (digits === undefined || Number(digits) === 0)
    throw new InvalidArgumentError('Use a duration such as 30s, 5m, 2h or 14d.')
  return Number(digits) * SECONDS[unit as keyof typeof SECONDS]
}

/** Returns an option for a duration, with `fallback` in the user's notation as its default. */
export function durationOption(flags: string, description: string, fallback: string): Option {
  return new Option(flags, description).argParser(parseDuration).default(parseDuration(fallback), fallback)
}

export const maxAgeOption = (): Option =>
  new Option(
    '--max-age <TIME>',
    'reject messages older than this, such as 12h or 30d, with a warning; rejected messages become dead letters; default: accept messages of any age',
  ).argParser(parseDuration)

/** `base`: what the label of an unnamed session begins with. */
export const sessionNameOption = (base = 'the name of this host'): Option =>
  new Option(
    '--as <NAME>',
    `the name of this session, which keeps its address YOU/NAME and its messages across restarts; default: ${base} and a number, such as laptop-1`,
  )

export function parseInteger(min: number, max: number): (text: string) => number {
  return (text) => {
    const number = Number(text)
    if (/^\d{1,15}$/.test(text) && number >= min && number <= max) return number
    throw new InvalidArgumentError(`Use a whole number from ${min} to ${max}.`)
  }
}

/** Returns a parser for `bytes` bytes in hex. */
export function parseHex(bytes: number): (text: string) => string {
  return (text) => {
    if (isHex(text, bytes)) return text
    throw new InvalidArgumentError(`Use ${2 * bytes} hex digits.`)
  }
}

const TIME = /^(\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?)?)(?:\.(\d{1,6}))?(Z|[+-]\d\d:\d\d)?$/

/** Parses a timestamp. @returns microseconds since 1970 */
export function parseTimestamp(text: string): { us: number } {
  const [, time, fraction = '', zone = ''] = TIME.exec(text) ?? []
  const ms = time === undefined ? Number.NaN : new Date(time + zone).getTime()
  if (!Number.isNaN(ms)) return { us: ms * 1000 + Number(fraction.padEnd(6, '0')) }
  if (/^\d{1,9}[smhd]$/.test(text)) return { us: (Date.now() - parseDuration(text) * 1000) * 1000 }
  throw new InvalidArgumentError('Use a time such as 2026-11-22T14:03Z, or an age such as 2h.')
}
