/**
 * Opens one connection to Postgres. postgres.js reuses a slot for many sockets, and under Bun a slot can hang: a write
 * scheduled when its socket closed is cancelled but still counts. Nor does it settle a query if the server stops
 * responding. So each driver instance has exactly one socket, which this package can destroy.
 */

import { assert, toHex } from '@sealpost/std'
import postgres from 'postgres'
import type { Host } from './database-error.ts'
import { type DatabaseUrl, parseDatabaseUrl } from './database-url.ts'
import { openAtHost } from './host-choice.ts'
import { type BackendKey, cancelStatement, openServerSocket, type ServerSocket, type Transport } from './socket.ts'

/**
 * An element of an array parameter. Parameters and results are text. The driver's lookup of array types costs a query
 * per connection, so it is off.
 */
type ArrayElement = string | number | Uint8Array | null

/** The OIDs of array parameters, as in `sql.typed(values, arrayOid.bytea)`. */
export const arrayOid = {
  bytea: 1001,
  int2: 1005,
  int4: 1007,
  text: 1009,
  int8: 1016,
  float8: 1022,
  timestamptz: 1185,
  uuid: 2951,
} as const

/**
 * Returns an array in Postgres' text form, for a parameter with a cast: `${arrayLiteral(keys)}::bytea[]`. Bytes become
 * `\x` hex.
 */
export function arrayLiteral(values: readonly ArrayElement[]): string {
  return `{${values.map(elementLiteral).join()}}`
}

/** Returns bytes in Postgres' text form, from bytes, hex or that form. */
export function byteaText(value: string | Uint8Array): string {
  if (typeof value !== 'string') return `\\x${toHex(value)}`
  return value.startsWith('\\x') ? value : `\\x${value}`
}

/**
 * The types that are encoded differently from the driver: bigint as a number (below 2^53), timestamptz as milliseconds
 * since 1970, bytea from bytes or hex, and the arrays of `arrayOid`.
 */
const columnTypes = {
  bigint: { to: 20, from: [20], parse: safeInteger, serialize: String },
  instant: { to: 1184, from: [1184], parse: (text: string) => new Date(text).getTime(), serialize: instantText },
  bytes: { to: 17, from: [17], parse: (text: string) => Buffer.from(text.slice(2), 'hex'), serialize: byteaText },
  ...Object.fromEntries(
    Object.entries(arrayOid).map(([name, oid]) => [
      `${name}Array`,
      { to: oid, from: [], parse: String, serialize: (x: string | ArrayElement[]) => arrayText(x, oid) },
    ]),
  ),
}

const TO_ESCAPE = /["\\]/g

function elementLiteral(value: ArrayElement): string {
  if (value === null) return 'NULL'
  if (typeof value === 'number') return String(value)
  if (typeof value === 'string') return `"${value.replace(TO_ESCAPE, '\\$&')}"`
  return `"\\\\x${toHex(value)}"`
}

function arrayText(value: string | ArrayElement[], oid: number): string {
  if (typeof value === 'string') return value
  return arrayLiteral(oid === arrayOid.bytea ? value.map((x) => (typeof x === 'string' ? byteaText(x) : x)) : value)
}

function safeInteger(text: string): number {
  const number = Number(text)
  assert(Number.isSafeInteger(number), 'a bigint column stays below 2^53')
  return number
}

function instantText(value: number | string | Date): string {
  return typeof value === 'string' ? value : new Date(value).toISOString()
}

export type Sql = postgres.Sql

export interface DatabaseConnection<Driver> {
  readonly driver: Driver
  readonly transport: Transport
  /** The process id that the server announced; undefined before that. */
  readonly pid: number | undefined
  readonly openedAt: number
  isClosed: boolean
  ping(): PromiseLike<unknown>
  /** Runs a statement without parameters and returns its only row, as text. */
  queryRow(text: string): Promise<readonly (string | null)[]>
  /** Closes the socket immediately and asks the server to cancel the running statement. */
  destroy(): void
  /** Ends the session in order. No statement may be running. */
  close(): Promise<void>
}

export interface DatabaseConnectionOptions<Driver> {
  applicationName: string
  connectTimeoutMs: number
  session: Record<string, string | number>
  onNotice?: ((message: string) => void) | undefined
  /** Called with each notification on a listened channel, by pipeline connections only. */
  onNotification?: ((channel: string, payload: string) => void) | undefined
  /** The time limit for a pipeline's steps together, which the server also enforces. */
  queryTimeoutMs?: number
  /** Called when the connection is lost or destroyed, but not by `close`. */
  onLost?: ((connection: DatabaseConnection<Driver>) => void) | undefined
}

/**
 * The TCP timeouts, in seconds, the last in milliseconds. After a silent network failure, the server would keep an open
 * transaction and its locks for 2 h 11 min by default; with these, for 25 s.
 */
export const TCP_TIMEOUTS = {
  tcp_keepalives_idle: 10,
  tcp_keepalives_interval: 5,
  tcp_keepalives_count: 3,
  tcp_user_timeout: 25_000,
}

/**
 * Connects, and checks the session before any statement is sent. An error means that nothing was executed.
 * @throws DatabaseError with the codes of `openAtHost`
 */
export async function openConnection(
  url: string,
  options: DatabaseConnectionOptions<Sql>,
): Promise<DatabaseConnection<Sql>> {
  const { connection } = await openAtHost(url, options.connectTimeoutMs, async (parsed, socket) => ({
    connection: newConnection(parsed, socket, options),
  }))
  return connection
}

function newConnection(
  url: DatabaseUrl,
  socket: ServerSocket,
  options: DatabaseConnectionOptions<Sql>,
): DatabaseConnection<Sql> {
  let isTaken = false
  let backendKey: Partial<BackendKey> = {}
  const lost = () => {
    if (connection.isClosed) return
    connection.isClosed = true
    options.onLost?.(connection)
  }
  const take = () => {
    if (isTaken) throw Object.assign(new Error('closed before it was ready'), { code: 'CONNECTION_CLOSED' })
    isTaken = true
    return socket.socket
  }
  const sql = postgres({ ...driverOptions(url, socket.host, options), onclose: lost, socket: take } as DriverOptions)
  const end = (timeoutMs: number) => sql.end({ timeout: timeoutMs / 1000 }).finally(socket.destroy)
  const connection: DatabaseConnection<Sql> = {
    driver: sql as Sql,
    transport: socket,
    get pid() {
      return backendKey.pid
    },
    openedAt: performance.now(),
    isClosed: false,
    ping: () => sql`select 1`.simple(),
    queryRow: async (text) => {
      const rows = await sql.unsafe(text).values()
      backendKey = rows.state as unknown as Partial<BackendKey>
      return rows[0] as readonly (string | null)[]
    },
    destroy: () => {
      lost()
      socket.destroy()
      cancelStatement(socket.host, backendKey)
      void end(0)
    },
    close: () => {
      connection.isClosed = true
      return end(1000)
    },
  }
  return connection
}

type DriverOptions = postgres.Options<Record<string, postgres.PostgresType>>

interface PostgresJsOptions {
  readonly connections: number
  readonly connection?: Record<string, string | number>
}

/**
 * Opens postgres.js with its own pool, at the host that is currently available, as a baseline for measurements of
 * `Database`.
 * @throws DatabaseError with the codes of `openAtHost`
 */
export async function openPostgresJs(url: string, { connections, connection = {} }: PostgresJsOptions): Promise<Sql> {
  const timeoutMs = 10_000
  const first = await openConnection(url, { applicationName: 'sealpost', connectTimeoutMs: timeoutMs, session: {} })
  const { host, protocol } = first.transport
  await first.close()
  const { tls, session, ...address } = { ...parseDatabaseUrl(url), hosts: [host] }
  const mode = protocol === null ? 'plaintext' : 'tls'
  return postgres({
    ...credentials(address, host),
    max: connections,
    connection: { ...connection, ...session },
    onnotice: () => undefined,
    socket: async () => (await openServerSocket(address, { tls, mode, timeoutMs })).socket,
  } as unknown as DriverOptions) as Sql
}

/** `ssl` is false, because the driver receives an already encrypted socket. */
const credentials = ({ user, password, database }: Credentials, { host, port }: Host) => ({
  ...{ host: [host], port: [port], database, user: user || undefined, pass: password || undefined, ssl: false },
})

type Credentials = Pick<DatabaseUrl, 'user' | 'password' | 'database'>

function driverOptions(url: DatabaseUrl, host: Host, options: DatabaseConnectionOptions<Sql>): DriverOptions {
  return {
    ...credentials(url, host),
    max: 1,
    max_pipeline: 1,
    max_lifetime: null,
    connect_timeout: options.connectTimeoutMs / 1000,
    keep_alive: 10,
    fetch_types: false,
    types: columnTypes,
    connection: { application_name: options.applicationName, ...options.session, ...url.session },
    onnotice: (notice: postgres.Notice) => options.onNotice?.(String(notice.message)),
  } as unknown as DriverOptions
}
