/**
 * What can go wrong with a statement, in the three answers a caller has a plan for. Only the SQLSTATE, a constraint's
 * name and a sentence of ours survive: the driver's own errors carry the statement, its parameters and key values.
 */
import { AssertionFailed, OperatingError } from '@sealpost/std'

/**
 * - `db_unavailable`, retryable: the connection failed under the statement; whether it took effect is unknown.
 * - `db_not_done`, retryable: it certainly took no effect (never sent, or rolled back by the server).
 * - `db_refused`: the same statement would be refused again (a constraint, a missing right, a bug).
 * - `db_closed`: this side has closed the database.
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

/** Of a `db_not_done`: said again, the rows find their place. */
export const NEW_PARTITION = '23514'

/** Where a database is, in the words a sentence may use: no password in it. */
export interface Address {
  readonly hosts: readonly Host[]
  readonly user: string
  readonly database: string
}

export interface Host {
  /** A name, an address, or the folder of a Unix socket. */
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

/** The server's own refusal of one statement: the connection is as good as before. Everything else costs it. */
export function leavesConnectionWhole(error: unknown): boolean {
  const { name, severity, code } = error as DriverError
  // 25006: this server became a standby, so stay with it no longer.
  return name === 'PostgresError' && severity === 'ERROR' && code !== '25006'
}

/** A statement failed on a connection that had been usable. */
export function statementError(error: unknown, address: Address): Error {
  // A fresh one: the driver has hung the statement and its parameters on the old.
  if (error instanceof AssertionFailed) return new AssertionFailed(error.message)
  if (error instanceof DatabaseError) return error
  const { name, code = name ?? 'unknown error' } = error as DriverError
  if (name !== 'PostgresError')
    return isConnectionError(code) ? unavailable(code, address) : refused(error as DriverError)
  // FATAL and PANIC end the session, and may be about an earlier one: a killed backend's 57P01 can meet a later query.
  if (!leavesConnectionWhole(error) && code !== '25006') return unavailable(code, address, code)
  return isRolledBackAndRetryable(code) || metNewPartition(error as DriverError)
    ? notDone(`${code}: rolled back by the server`, address, code)
    : refused(error as DriverError)
}

/** No connection could be opened, so no statement was sent. */
export function connectError(error: unknown, address: Address): DatabaseError {
  if (error instanceof DatabaseError) return error
  const { code = 'unknown error', message = '' } = error as DriverError
  const { user, database } = address
  if (code === PROTOCOL_VIOLATION && /startup parameter/.test(message)) return pooled(address)
  const refusals: Record<string, string> = {
    '28P01': `${at(address)} refused the password of user "${user}"`,
    '28000': `${at(address)} does not let user "${user}" in from here`,
    '3D000': `${at(address)} has no database "${database}"`,
    '42501': `${at(address)} does not let user "${user}" into database "${database}"`,
  }
  const sentence = refusals[code]
  if (sentence) return new DatabaseError('db_refused', sentence, { sqlstate: code })
  if (code.startsWith('SASL') || code.startsWith('28')) {
    const sentence = `${at(address)} and this client could not authenticate (${code})`
    return new DatabaseError('db_refused', sentence, isSqlstate(code) ? { sqlstate: code } : {})
  }
  if (/^(0A|22|42)/.test(code)) return refused(error as DriverError)
  return notDone(reasons[code] ?? code, address, isSqlstate(code) ? code : undefined)
}

export function timedOut(address: Address, timeoutMs: number): DatabaseError {
  return new DatabaseError('db_unavailable', `${at(address)} gave no answer within ${timeoutMs} ms`, {
    retryable: true,
  })
}

export function notDone(reason: string, address: Address, sqlstate?: string): DatabaseError {
  return new DatabaseError('db_not_done', `${at(address)} is not available: ${reason}`, {
    retryable: true,
    ...(sqlstate ? { sqlstate } : {}),
  })
}

/** Of a server that is read as it should be this is hardly ever heard; poolers answer it for faults of their own. */
const PROTOCOL_VIOLATION = '08P01'
const POOLER_LIKELY =
  'it answered with a protocol violation (08P01), which usually comes from a connection pooler in between, such as PgBouncer: name the host and port of Postgres itself'

/** A connection that does not lead straight to one session of the server. */
export function pooled(address: Address): DatabaseError {
  return new DatabaseError(
    'db_pooled',
    `A connection pooler such as PgBouncer answers in place of ${at(address)}: settings of sessions, prepared statements, LISTEN and advisory locks get lost in it, so name the host and port of Postgres itself in the database URL`,
  )
}

const reasons: Record<string, string> = {
  ECONNREFUSED: 'it refuses connections',
  ENOTFOUND: 'its host name is unknown',
  EAI_AGAIN: 'its host name could not be looked up',
  EHOSTUNREACH: 'no route leads to its host',
  ENETUNREACH: 'no route leads to its network',
  CONNECT_TIMEOUT: 'it does not answer',
  CONNECTION_DESTROYED: 'it does not answer', // we hung up, for want of an answer
  CONNECTION_CLOSED: 'it closed the connection at once',
  [PROTOCOL_VIOLATION]: POOLER_LIKELY,
  '53300': 'it has no connection left (53300)',
  '57P03': 'it is starting up or shutting down (57P03)',
}

export function at({ hosts }: Address): string {
  return `Postgres at ${hosts.map(hostText).join(' or ')}`
}

/** As a URL has them: an IPv6 address in brackets. */
function hostText({ host, port }: Host): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}

function unavailable(reason: string, address: Address, sqlstate?: string): DatabaseError {
  const said = sqlstate === PROTOCOL_VIOLATION ? POOLER_LIKELY : reason
  return new DatabaseError('db_unavailable', `${at(address)} went away during a statement (${said})`, {
    retryable: true,
    ...(sqlstate ? { sqlstate } : {}),
  })
}

function refused({ name, code, message, constraint_name: constraint }: DriverError): DatabaseError {
  const sqlstate = code && isSqlstate(code) ? code : undefined
  // Class 42 speaks of the statement's own text; any other message may quote a value.
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

/** An ERROR answer to a single statement means that its implicit transaction is rolled back. */
function isRolledBackAndRetryable(sqlstate: string): boolean {
  return /^(40|53)/.test(sqlstate) || ['55P03', '57014', '25006'].includes(sqlstate)
}

/** A partition was attached between the plan of a statement and its rows. A check of ours would have a name. */
const metNewPartition = ({ code, constraint_name: constraint }: DriverError): boolean =>
  code === NEW_PARTITION && !constraint

function isConnectionError(code: string): boolean {
  return /^(CONNECT|E[A-Z]+$)/.test(code)
}

function isSqlstate(code: string): boolean {
  return /^[0-9A-Z]{5}$/.test(code) && /\d/.test(code)
}
