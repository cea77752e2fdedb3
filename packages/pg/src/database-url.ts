/** Parses `DATABASE_URL` and similar URLs, for both drivers. Parameters have the meaning that libpq gives them. */
import { type DatabaseAddress, DatabaseError, type Host } from './database-error.ts'

export const TARGET_SESSION_ATTRS = ['any', 'read-write', 'read-only', 'primary', 'standby', 'prefer-standby'] as const
export type TargetSessionAttrs = (typeof TARGET_SESSION_ATTRS)[number]

export const SSL_MODES = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'] as const
export type SslMode = (typeof SSL_MODES)[number]

export interface TlsOptions {
  /** Null for the default, which depends on the host. */
  readonly mode: SslMode | null
  /** A file of certificates, or `system` for this machine's. */
  readonly rootCert: string | null
  readonly cert: string | null
  readonly key: string | null
  /** Whether the TLS handshake begins without asking whether the server offers TLS. */
  readonly isDirect: boolean
}

export interface DatabaseUrl extends DatabaseAddress {
  readonly password: string
  /** The kind of session that a host must offer. */
  readonly target: TargetSessionAttrs
  readonly tls: TlsOptions
  readonly session: Readonly<Record<string, string>>
}

const SHAPE = 'The database URL must look like postgres://user:password@host:5432/database'
const PORT = 5432

/** @throws DatabaseError `db_url_invalid`, whose message never quotes the URL, because it contains a password */
export function parseDatabaseUrl(text: string): DatabaseUrl {
  const [, authority, path = '', query = ''] =
    /^postgres(?:ql)?:\/\/([^/?#]*)(?:\/([^?#]*))?(?:\?([^#]*))?(?:#.*)?$/i.exec(text.trim()) ?? []
  if (authority === undefined) throw invalid(SHAPE)
  const parameters = parametersOf(query)
  const at = authority.lastIndexOf('@')
  const [, user = '', password = ''] = /^([^:]*):?(.*)$/s.exec(authority.slice(0, Math.max(at, 0))) ?? []
  const database = parameters.take('dbname') ?? decode(path)
  if (database === '') throw invalid(SHAPE)
  const hosts =
    hostsFromParameters(parameters.take('host'), parameters.take('port')) ?? hostsFromAuthority(authority.slice(at + 1))
  return {
    hosts,
    database,
    user: parameters.take('user') ?? decode(user),
    password: parameters.take('password') ?? decode(password),
    target: targetOf(parameters.take('target_session_attrs'), hosts),
    tls: tlsOf(parameters),
    session: parameters.rest(),
  }
}

/** @throws DatabaseError `db_url_invalid` */
export function parseAddress(text: string): DatabaseAddress {
  const { hosts, user, database } = parseDatabaseUrl(text)
  return { hosts, user, database }
}

/** Returns the URL with another database name. @throws DatabaseError `db_url_invalid` */
export function withDatabaseName(text: string, name: string): string {
  parseDatabaseUrl(text)
  return text.trim().replace(/^(\w+:\/\/[^/?#]*)(?:\/[^?#]*)?/, `$1/${encodeURIComponent(name)}`)
}

export const isSocketDirectory = (host: string): boolean => host.startsWith('/')

export function isLoopback(host: string): boolean {
  return isSocketDirectory(host) || host === 'localhost' || /^(127\.[\d.]+|::1|::ffff:127\.[\d.]+)$/.test(host)
}

function hostsFromAuthority(hosts: string): Host[] {
  return hosts.split(',').map((one) => {
    const [, bracketed, plain = '', port] = /^(?:\[([^\]]+)\]|([^:]*))(?::(\d*))?$/.exec(one) ?? []
    if (port === undefined && one.includes(':') && bracketed === undefined) throw invalid(SHAPE)
    return { host: bracketed ?? (decode(plain) || 'localhost'), port: portOf(port) }
  })
}

/** Parses the parameters `host` and `port` as lists. A single port applies to all hosts. */
function hostsFromParameters(hosts: string | undefined, ports = ''): Host[] | null {
  if (hosts === undefined) return null
  const names = hosts.split(',')
  const numbers = ports.split(',')
  if (numbers.length !== 1 && numbers.length !== names.length)
    throw invalid('The database URL must have one port in `port`, or one for each host in `host`')
  return names.map((name, i) => ({ host: name || 'localhost', port: portOf(numbers[i] ?? numbers[0]) }))
}

function portOf(text: string | undefined): number {
  if (!text) return PORT
  const port = Number(text)
  if (!/^\d+$/.test(text) || port < 1 || port > 65_535) throw invalid(SHAPE)
  return port
}

/** Returns the kind of session to accept: with several hosts, by default one that accepts writes. */
function targetOf(text: string | undefined, hosts: readonly Host[]): TargetSessionAttrs {
  if (text === undefined) return hosts.length > 1 ? 'read-write' : 'any'
  return oneOf(TARGET_SESSION_ATTRS, 'target_session_attrs', text)
}

function tlsOf(parameters: Parameters): TlsOptions {
  const rootCert = parameters.take('sslrootcert') || null
  const cert = parameters.take('sslcert') || null
  const key = parameters.take('sslkey') || null
  const negotiation = parameters.take('sslnegotiation') ?? 'postgres'
  const isDirect = oneOf(['postgres', 'direct'], 'sslnegotiation', negotiation) === 'direct'
  const mode =
    modeOf(parameters.take('sslmode'), parameters.take('ssl')) ?? (rootCert === 'system' ? 'verify-full' : null)
  if (rootCert === 'system' && mode !== 'verify-full')
    throw invalid('The database URL has sslrootcert=system, which requires sslmode=verify-full')
  if (mode === 'verify-ca' && rootCert === null)
    throw invalid('The database URL has sslmode=verify-ca, which requires sslrootcert, a file of certificates')
  if (isDirect && !['require', 'verify-ca', 'verify-full'].includes(mode ?? ''))
    throw invalid('The database URL has sslnegotiation=direct, which requires sslmode=require or stricter')
  if ((cert === null) !== (key === null))
    throw invalid('The database URL must set sslcert and sslkey together, each to the path of a file')
  return { mode, rootCert, cert, key, isDirect }
}

/** Also accepts `ssl` and `no-verify`, as JavaScript drivers do. */
function modeOf(sslmode: string | undefined, ssl: string | undefined): SslMode | null {
  const given = sslmode ?? ssl
  const aliases: Record<string, SslMode> = { 'no-verify': 'require' }
  if (sslmode === undefined) Object.assign(aliases, { true: 'verify-full', false: 'disable' })
  return given === undefined ? null : (aliases[given] ?? oneOf(SSL_MODES, 'sslmode', given))
}

function oneOf<T extends string>(values: readonly T[], name: string, given: string): T {
  const value = values.find((each) => each === given)
  if (value === undefined) throw invalid(`The database URL must set ${name} to one of ${values.join(', ')}`)
  return value
}

const IGNORED = [
  ...['connect_timeout', 'fallback_application_name', 'sslcompression', 'sslsni'],
  ...['keepalives', 'keepalives_idle', 'keepalives_interval', 'keepalives_count'],
]
/** Parameters that are refused, because ignoring them would weaken the security that the URL requires. */
const UNSUPPORTED = [
  ...['hostaddr', 'passfile', 'service', 'sslcrl', 'sslcrldir', 'sslpassword', 'sslcertmode', 'require_auth'],
  ...['requirepeer', 'ssl_min_protocol_version', 'ssl_max_protocol_version', 'load_balance_hosts'],
]
/** Parameters of which only this value is supported. */
const UNSUPPORTED_VALUES: Readonly<Record<string, string>> = { channel_binding: 'require', gssencmode: 'require' }

interface Parameters {
  take(name: string): string | undefined
  rest(): Record<string, string>
}

function parametersOf(query: string): Parameters {
  const left = new Map(new URLSearchParams(query))
  for (const name of UNSUPPORTED)
    if (left.has(name)) throw invalid(`The database URL has ${name}, which Sealpost does not support`)
  for (const [name, value] of Object.entries(UNSUPPORTED_VALUES)) {
    if (left.get(name) === value)
      throw invalid(`The database URL has ${name}=${value}, which Sealpost does not support: leave it out`)
    left.delete(name)
  }
  for (const name of IGNORED) left.delete(name)
  return {
    take: (name) => {
      const value = left.get(name)
      left.delete(name)
      return value
    },
    rest: () => Object.fromEntries(left),
  }
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw invalid(`${SHAPE}, with special characters percent-encoded`)
  }
}

const invalid = (sentence: string) => new DatabaseError('db_url_invalid', sentence)
