/**
 * What `DATABASE_URL` and its like say. This is the one place that takes such a URL apart: the names and their meaning are
 * those of libpq, and both drivers are given what is read here.
 */
import { type Address, DatabaseError, type Host } from './database-error.ts'

export const TARGETS = ['any', 'read-write', 'read-only', 'primary', 'standby', 'prefer-standby'] as const
export type Target = (typeof TARGETS)[number]

export const SSL_MODES = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'] as const
export type SslMode = (typeof SSL_MODES)[number]

export interface TlsTerms {
  /** Null: whatever suits the host. */
  readonly mode: SslMode | null
  /** A file of certificates; `system`: those that the machine trusts. */
  readonly rootCert: string | null
  readonly cert: string | null
  readonly key: string | null
  /** Begin with the handshake, without asking whether the server has TLS. */
  readonly isDirect: boolean
}

export interface DatabaseUrl extends Address {
  readonly password: string
  /** Which of the hosts will do. */
  readonly target: Target
  readonly tls: TlsTerms
  /** Settings of the session. */
  readonly session: Readonly<Record<string, string>>
}

const SHAPE = 'The database URL must look like postgres://user:password@host:5432/database'
const PORT = 5432

/** @throws DatabaseError `db_url_invalid`, which never repeats the text: it holds a password */
export function parseDatabaseUrl(text: string): DatabaseUrl {
  const [, authority, path = '', query = ''] =
    /^postgres(?:ql)?:\/\/([^/?#]*)(?:\/([^?#]*))?(?:\?([^#]*))?(?:#.*)?$/i.exec(text.trim()) ?? []
  if (authority === undefined) throw invalid(SHAPE)
  const parameters = parametersOf(query)
  const at = authority.lastIndexOf('@')
  const [, user = '', password = ''] = /^([^:]*):?(.*)$/s.exec(authority.slice(0, Math.max(at, 0))) ?? []
  const database = parameters.take('dbname') ?? decoded(path)
  if (database === '') throw invalid(SHAPE)
  const hosts = hostsOf(parameters.take('host'), parameters.take('port')) ?? listed(authority.slice(at + 1))
  return {
    hosts,
    database,
    user: parameters.take('user') ?? decoded(user),
    password: parameters.take('password') ?? decoded(password),
    target: targetOf(parameters.take('target_session_attrs'), hosts),
    tls: tlsOf(parameters),
    session: parameters.rest(),
  }
}

/** @throws DatabaseError `db_url_invalid` */
export function parseAddress(text: string): Address {
  const { hosts, user, database } = parseDatabaseUrl(text)
  return { hosts, user, database }
}

/** The same server, or servers, and another database there. @throws DatabaseError `db_url_invalid` */
export function withDatabaseName(text: string, name: string): string {
  parseDatabaseUrl(text)
  return text.trim().replace(/^(\w+:\/\/[^/?#]*)(?:\/[^?#]*)?/, `$1/${encodeURIComponent(name)}`)
}

export const isSocketFolder = (host: string): boolean => host.startsWith('/')

export function isLoopback(host: string): boolean {
  return isSocketFolder(host) || host === 'localhost' || /^(127\.[\d.]+|::1|::ffff:127\.[\d.]+)$/.test(host)
}

function listed(hosts: string): Host[] {
  return hosts.split(',').map((one) => {
    const [, bracketed, plain = '', port] = /^(?:\[([^\]]+)\]|([^:]*))(?::(\d*))?$/.exec(one) ?? []
    if (port === undefined && one.includes(':') && bracketed === undefined) throw invalid(SHAPE)
    return { host: bracketed ?? (decoded(plain) || 'localhost'), port: portOf(port) }
  })
}

/** As libpq has them in parameters: lists, of which that of the ports may have one for all. */
function hostsOf(hosts: string | undefined, ports = ''): Host[] | null {
  if (hosts === undefined) return null
  const names = hosts.split(',')
  const numbers = ports.split(',')
  if (numbers.length !== 1 && numbers.length !== names.length)
    throw invalid('The database URL must have one port in `port`, or as many as hosts in `host`')
  return names.map((name, i) => ({ host: name || 'localhost', port: portOf(numbers[i] ?? numbers[0]) }))
}

function portOf(text: string | undefined): number {
  if (!text) return PORT
  const port = Number(text)
  if (!/^\d+$/.test(text) || port < 1 || port > 65_535) throw invalid(SHAPE)
  return port
}

/** With several hosts the default is one that takes writes. A single host is accepted as it is and checked after connecting. */
function targetOf(text: string | undefined, hosts: readonly Host[]): Target {
  if (text === undefined) return hosts.length > 1 ? 'read-write' : 'any'
  return oneOf(TARGETS, 'target_session_attrs', text)
}

function tlsOf(parameters: Parameters): TlsTerms {
  const rootCert = parameters.take('sslrootcert') || null
  const cert = parameters.take('sslcert') || null
  const key = parameters.take('sslkey') || null
  const negotiation = parameters.take('sslnegotiation') ?? 'postgres'
  const isDirect = oneOf(['postgres', 'direct'], 'sslnegotiation', negotiation) === 'direct'
  const mode =
    modeOf(parameters.take('sslmode'), parameters.take('ssl')) ?? (rootCert === 'system' ? 'verify-full' : null)
  if (rootCert === 'system' && mode !== 'verify-full')
    throw invalid('The database URL has sslrootcert=system, which takes sslmode=verify-full and no weaker one')
  if (mode === 'verify-ca' && rootCert === null)
    throw invalid('The database URL has sslmode=verify-ca, which needs sslrootcert, a file of certificates')
  if (isDirect && !['require', 'verify-ca', 'verify-full'].includes(mode ?? ''))
    throw invalid('The database URL has sslnegotiation=direct, which needs sslmode=require or a stronger one')
  if ((cert === null) !== (key === null))
    throw invalid('The database URL must have sslcert and sslkey together, each the path of a file')
  return { mode, rootCert, cert, key, isDirect }
}

/** `ssl` and `no-verify` are names that drivers of JavaScript have for it. */
function modeOf(sslmode: string | undefined, ssl: string | undefined): SslMode | null {
  const given = sslmode ?? ssl
  const aliases: Record<string, SslMode> = { 'no-verify': 'require' }
  if (sslmode === undefined) Object.assign(aliases, { true: 'verify-full', false: 'disable' })
  return given === undefined ? null : (aliases[given] ?? oneOf(SSL_MODES, 'sslmode', given))
}

function oneOf<T extends string>(words: readonly T[], name: string, given: string): T {
  const word = words.find((each) => each === given)
  if (word === undefined) throw invalid(`The database URL must have ${words.join(', ')} as ${name}`)
  return word
}

/** What libpq does for itself, and what has no use here. */
const IGNORED = [
  ...['connect_timeout', 'fallback_application_name', 'sslcompression', 'sslsni'],
  ...['keepalives', 'keepalives_idle', 'keepalives_interval', 'keepalives_count'],
]
/** Security settings: ignoring one would weaken the connection that the URL asks for. */
const UNSUPPORTED = [
  ...['hostaddr', 'passfile', 'service', 'sslcrl', 'sslcrldir', 'sslpassword', 'sslcertmode', 'require_auth'],
  ...['requirepeer', 'ssl_min_protocol_version', 'ssl_max_protocol_version', 'load_balance_hosts'],
]
/** Names whose other values ask for nothing. */
const UNSUPPORTED_VALUES: Readonly<Record<string, string>> = { channel_binding: 'require', gssencmode: 'require' }

interface Parameters {
  take(name: string): string | undefined
  /** What was not taken. */
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

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw invalid(`${SHAPE}, with special characters percent-encoded`)
  }
}

const invalid = (sentence: string) => new DatabaseError('db_url_invalid', sentence)
