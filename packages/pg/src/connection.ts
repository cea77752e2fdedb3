/**
 * One connection to Postgres. postgres.js reuses a connection slot for many sockets, and under Bun such a slot can hang
 * forever: a write that was scheduled when the socket closed is cancelled but still counts as scheduled, so the first
 * message of the next socket is never sent. Nor does postgres.js settle a query whose peer fell silent. So each driver
 * instance gets exactly one socket, which this package can destroy, and a failed connection is replaced, never reused.
 */
import postgres from 'postgres'
import { columnTypes } from './column-types.ts'
import type { Host } from './database-error.ts'
import { type DatabaseUrl, parseDatabaseUrl } from './database-url.ts'
import { openAtHost } from './host-choice.ts'
import { type BackendKey, cancelStatement, openServerSocket, type ServerSocket, type Transport } from './socket.ts'

export type Sql = postgres.Sql

export interface DatabaseConnection<Driver> {
  readonly driver: Driver
  readonly transport: Transport
  /** The process id that the server announced at the start; undefined before. */
  readonly pid: number | undefined
  /** By `performance.now`. */
  readonly openedAt: number
  isClosed: boolean
  ping(): PromiseLike<unknown>
  /** Returns the only row of a statement without parameters, as text. */
  queryRow(text: string): Promise<readonly (string | null)[]>
  /** Closes the socket at once, and asks the server to cancel what runs on the connection. */
  destroy(): void
  /** Ends the session in order. Nothing may run on it. */
  close(): Promise<void>
}

export interface DatabaseConnectionOptions<Driver> {
  applicationName: string
  connectTimeoutMs: number
  /** Session settings, sent with the startup message. */
  session: Record<string, string | number>
  onNotice?: ((message: string) => void) | undefined
  /** A notification on a channel that this connection listens to. Only pipeline connections report them. */
  onNotification?: ((channel: string, payload: string) => void) | undefined
  /** Limits all steps of a pipeline run together, on the server as well. */
  queryTimeoutMs?: number
  /** The connection was lost or destroyed. Not called after `close`. */
  onLost?: ((connection: DatabaseConnection<Driver>) => void) | undefined
}

/**
 * A network that fails silently in the middle of a write leaves the server with an open transaction and its row locks.
 * The server doesn't see it as idle, and keeps it for 2 h 11 min by default. With these settings: 25 s. In seconds, the
 * last one in ms.
 */
export const TCP_TIMEOUTS = {
  tcp_keepalives_idle: 10,
  tcp_keepalives_interval: 5,
  tcp_keepalives_count: 3,
  tcp_user_timeout: 25_000,
}

/**
 * Connects and checks the session before any statement of the caller is sent, so an error here means that nothing was
 * executed.
 * @throws DatabaseError as `openAtHost`
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
  /** Session settings. */
  readonly connection?: Record<string, string | number>
}

/**
 * Opens postgres.js with its own pool, at the host that serves now, as a baseline for measurements of `Database`.
 * @throws DatabaseError as `openAtHost`
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

/** `ssl: false`: the driver gets a socket that is encrypted already where it has to be. */
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
