/**
 * Maps database errors to categories for callers. An error contains only the SQLSTATE, a constraint's name and our own
 * sentence, because drivers quote statements, parameters and keys.
 */
import { AssertionFailed, OperatingError } from '@sealpost/std'

/**
 * - `db_unavailable`, retryable: the connection failed during the statement; whether it took effect is unknown.
 * - `db_not_executed`, retryable: the statement had no effect (it was never sent, or the server rolled it back).
 * - `db_refused`: the server would refuse the same statement again (a constraint, a missing privilege, a bug).
 * - `db_closed`: this process has closed the pool.
 */
export class DatabaseError extends OperatingError {
  readonly sqlstate: string | undefined
  readonly constraint: string | undefined

  constructor(
    code: string,
    sentence: string,
    facts: { retryable?: boolean; sqlstate?: string; constraint?: string } = {},
  ) {
    super(code, sentence, { retryable: facts.retryable ?? false })
    this.sqlstate = facts.sqlstate
    this.constraint = facts.constraint
  }
}

/** The SQLSTATE of a `db_not_executed` whose rows belong to a new partition. Repeating the statement succeeds. */
export const NEW_PARTITION = '23514'

/** The location of a database without the password, for messages. */
export interface DatabaseAddress {
  readonly hosts: readonly Host[]
  readonly user: string
  readonly database: string
}

export interface Host {
  /** A name, an IP address, or the directory of a Unix socket. */
  readonly host: string
  readonly port: number
}

interface DriverError {
  name?: string
  code?: string
  message?: string
  severity?: string
  constraint_name?: string
}

/** Returns whether the connection is usable, because the server refused only one statement. */
export function keepsConnection(error: unknown): boolean {
  const { name, severity, code } = error as DriverError
  // On 25006, the server has become a standby, and the pool must find another.
  return name === 'PostgresError' && severity === 'ERROR' && code !== '25006'
}

/** Maps an error from a statement on an established connection. */
export function statementError(error: unknown, address: DatabaseAddress): Error {
  // A new error, because the driver has attached the statement and its parameters to the old one.
  if (error instanceof AssertionFailed) return new AssertionFailed(error.message)
  if (error instanceof DatabaseError) return error
  const { name, code = name ?? 'unknown error' } = error as DriverError
  if (name !== 'PostgresError')
    return isConnectionError(code) ? unavailable(code, address) : refused(error as DriverError)
  // FATAL and PANIC end the session, and may concern an earlier statement, so the outcome is unknown.
  if (!keepsConnection(error) && code !== '25006') return unavailable(code, address, code)
  return isRolledBackAndRetryable(code) || hitNewPartition(error as DriverError)
    ? notExecuted(`${code}: rolled back by the server`, address, code)
    : refused(error as DriverError)
}

export function connectError(error: unknown, address: DatabaseAddress): DatabaseError {
  if (error instanceof DatabaseError) return error
  const { code = 'unknown error', message = '' } = error as DriverError
  const { user, database } = address
  if (code === PROTOCOL_VIOLATION && /startup parameter/.test(message)) return poolerError(address)
  const refusals: Record<string, string> = {
    '28P01': `${serverName(address)} refused the password of user "${user}"`,
    '28000': `${serverName(address)} does not admit user "${user}" from this address`,
    '3D000': `${serverName(address)} has no database "${database}"`,
    '42501': `${serverName(address)} does not admit user "${user}" to database "${database}"`,
  }
  const sentence = refusals[code]
  if (sentence) return new DatabaseError('db_refused', sentence, { sqlstate: code })
  if (code.startsWith('SASL') || code.startsWith('28')) {
    const sentence = `${serverName(address)} and this client could not authenticate (${code})`
    return new DatabaseError('db_refused', sentence, isSqlstate(code) ? { sqlstate: code } : {})
  }
  if (/^(0A|22|42)/.test(code)) return refused(error as DriverError)
  return notExecuted(reasons[code] ?? code, address, isSqlstate(code) ? code : undefined)
}

export function timedOut(address: DatabaseAddress, timeoutMs: number): DatabaseError {
  return new DatabaseError('db_unavailable', `${serverName(address)} did not reply within ${timeoutMs} ms`, {
    retryable: true,
  })
}

export function notExecuted(reason: string, address: DatabaseAddress, sqlstate?: string): DatabaseError {
  return new DatabaseError('db_not_executed', `${serverName(address)} is not available: ${reason}`, {
    retryable: true,
    ...(sqlstate ? { sqlstate } : {}),
  })
}

/** The code that poolers send for their own errors. A server rarely sends it to a correct client. */
const PROTOCOL_VIOLATION = '08P01'
const POOLER_LIKELY =
  'it reported a protocol violation (08P01), which usually comes from a connection pooler such as PgBouncer: use the host and port of Postgres itself'

/** Creates the error for a connection that does not lead to one session of the server. */
export function poolerError(address: DatabaseAddress): DatabaseError {
  return new DatabaseError(
    'db_pooled',
    `A connection pooler such as PgBouncer responds in place of ${serverName(address)}: it loses session settings, prepared statements, LISTEN and advisory locks, so use the host and port of Postgres itself in the database URL`,
  )
}

const reasons: Record<string, string> = {
  ECONNREFUSED: 'it refuses connections',
  ENOTFOUND: 'its host name is unknown',
  EAI_AGAIN: 'its host name could not be looked up',
  EHOSTUNREACH: 'there is no route to its host',
  ENETUNREACH: 'there is no route to its network',
  CONNECT_TIMEOUT: 'it does not reply',
  CONNECTION_DESTROYED: 'it does not reply', // after a timeout, this side has closed the socket
  CONNECTION_CLOSED: 'it closed the connection immediately',
  [PROTOCOL_VIOLATION]: POOLER_LIKELY,
  '53300': 'it has no free connection slot (53300)',
  '57P03': 'it is starting up or shutting down (57P03)',
}

export function serverName({ hosts }: DatabaseAddress): string {
  return `Postgres at ${hosts.map(hostText).join(' or ')}`
}

/** Formats the host as in a URL; an IPv6 address is in brackets. */
function hostText({ host, port }: Host): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}

function unavailable(reason: string, address: DatabaseAddress, sqlstate?: string): DatabaseError {
  const shown = sqlstate === PROTOCOL_VIOLATION ? POOLER_LIKELY : reason
  return new DatabaseError('db_unavailable', `${serverName(address)} failed during a statement (${shown})`, {
    retryable: true,
    ...(sqlstate ? { sqlstate } : {}),
  })
}

function refused({ name, code, message, constraint_name: constraint }: DriverError): DatabaseError {
  const sqlstate = code && isSqlstate(code) ? code : undefined
  // Only messages of class 42 quote just the statement's text; others may quote a value.
  const detail = detailOf(sqlstate, message, constraint)
  return new DatabaseError('db_refused', `Postgres refused a statement (${code ?? name ?? 'unknown error'})${detail}`, {
    ...(sqlstate ? { sqlstate } : {}),
    ...(constraint ? { constraint } : {}),
  })
}

function detailOf(sqlstate: string | undefined, message: string | undefined, constraint: string | undefined): string {
  if (sqlstate === PROTOCOL_VIOLATION) return `: ${POOLER_LIKELY}`
  if (sqlstate?.startsWith('42')) return `: ${message}`
  return constraint ? ` by constraint "${constraint}"` : ''
}

/** Returns whether an ERROR, which rolls back the statement, is worth a retry. */
function isRolledBackAndRetryable(sqlstate: string): boolean {
  return /^(40|53)/.test(sqlstate) || ['55P03', '57014', '25006'].includes(sqlstate)
}

/** Returns whether a partition was attached after the statement was planned. Our own check constraints have names. */
const hitNewPartition = ({ code, constraint_name: constraint }: DriverError): boolean =>
  code === NEW_PARTITION && !constraint

function isConnectionError(code: string): boolean {
  return /^(CONNECT|E[A-Z]+$)/.test(code)
}

function isSqlstate(code: string): boolean {
  return /^[0-9A-Z]{5}$/.test(code) && /\d/.test(code)
}
