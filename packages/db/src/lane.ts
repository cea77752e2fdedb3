/**
 * One connection. The driver (postgres.js) keeps a connection's slot over many sockets, and under Bun such a slot can
 * die for good: a write that was scheduled when the socket closed is cancelled but still remembered as scheduled, so
 * the next socket's first message is never sent. It also never settles a query whose peer has gone silent. So here one
 * driver instance has exactly one socket, which is ours to destroy, and a lane that failed is replaced, never revived.
 */
import postgres from 'postgres'
import { columnTypes } from './column-types.ts'
import type { Host } from './database-error.ts'
import { type DatabaseUrl, parseDatabaseUrl } from './database-url.ts'
import { openAtHost } from './lane-host.ts'
import { type Backend, cancelStatement, openWire, type Transport, type Wire } from './server-socket.ts'

export type Sql = postgres.Sql

export interface Lane<Driver> {
  readonly driver: Driver
  readonly transport: Transport
  /** As the server called it when the connection began. */
  readonly pid: number | undefined
  readonly openedAt: number
  readonly isGone: boolean
  /** Asks for a sign of life. */
  ping(): PromiseLike<unknown>
  /** The only row of a statement without parameters, as texts. */
  row(text: string): Promise<readonly (string | null)[]>
  /** Ends the connection now, and asks the server to end whatever runs on it. */
  cut(): void
  /** Says goodbye first; for a lane on which nothing runs. */
  retire(): Promise<void>
}

export interface LaneOptions<Driver> {
  applicationName: string
  connectTimeoutMs: number
  /** Settings of the session, sent with the first message. */
  session: Record<string, string | number>
  onNotice?: ((message: string) => void) | undefined
  /** Of a channel that was listened to on this connection. Only pipe lanes hear it. */
  onNotification?: ((channel: string, payload: string) => void) | undefined
  /** Of all steps of one run together, on the server, too. */
  queryTimeoutMs?: number
  /** It was lost or cut; not called for one that retired. */
  onGone?: ((lane: Lane<Driver>) => void) | undefined
}

/**
 * Connects, and asks the server for an answer before anything else is sent: whatever fails up to here was not done.
 * @throws DatabaseError as `openAtHost`
 */
export async function openLane(url: string, options: LaneOptions<Sql>): Promise<Lane<Sql>> {
  const { lane } = await openAtHost(url, options.connectTimeoutMs, async (parsed, wire) => ({
    lane: newLane(parsed, wire, options),
  }))
  return lane
}

function newLane(url: DatabaseUrl, wire: Wire, options: LaneOptions<Sql>): Lane<Sql> {
  let isTaken = false
  let backend: Partial<Backend> = {}
  let isGone = false
  const gone = () => {
    if (isGone) return
    isGone = true
    options.onGone?.(lane)
  }
  const take = () => {
    if (isTaken) throw Object.assign(new Error('closed before it was ready'), { code: 'CONNECTION_CLOSED' })
    isTaken = true
    return wire.socket
  }
  const sql = postgres({ ...driverOptions(url, wire.host, options), onclose: gone, socket: take } as DriverOptions)
  const end = (timeoutMs: number) => sql.end({ timeout: timeoutMs / 1000 }).finally(wire.destroy)
  const lane: Lane<Sql> = {
    driver: sql as Sql,
    transport: wire,
    get pid() {
      return backend.pid
    },
    openedAt: performance.now(),
    get isGone() {
      return isGone
    },
    ping: () => sql`select 1`.simple(),
    row: async (text) => {
      const rows = await sql.unsafe(text).values()
      backend = rows.state as unknown as Partial<Backend>
      return rows[0] as readonly (string | null)[]
    },
    cut: () => {
      gone()
      wire.destroy()
      cancelStatement(wire.host, backend)
      void end(0)
    },
    retire: () => {
      isGone = true
      return end(1000)
    },
  }
  return lane
}

type DriverOptions = postgres.Options<Record<string, postgres.PostgresType>>

interface RawOptions {
  readonly connections: number
  readonly connection?: Record<string, string | number>
}

/**
 * The driver with a pool of its own, at one host of the URL and for as long as that host serves: for a yardstick, which
 * measures without what a `Database` does. @throws DatabaseError as `openAtHost`
 */
export async function openDriver(url: string, { connections, connection = {} }: RawOptions): Promise<Sql> {
  const timeoutMs = 10_000
  const first = await openLane(url, { applicationName: 'sealpost', connectTimeoutMs: timeoutMs, session: {} })
  const { host, protocol } = first.transport
  await first.retire()
  const { tls, session, ...address } = { ...parseDatabaseUrl(url), hosts: [host] }
  const way = protocol === null ? 'clear' : 'tls'
  return postgres({
    ...credentials(address, host),
    max: connections,
    connection: { ...connection, ...session },
    onnotice: () => undefined,
    socket: async () => (await openWire(address, { tls, way, timeoutMs })).socket,
  } as unknown as DriverOptions) as Sql
}

/** The socket is ready when the driver gets it: of TLS it knows nothing. */
const credentials = ({ user, password, database }: Credentials, { host, port }: Host) => ({
  ...{ host: [host], port: [port], database, user: user || undefined, pass: password || undefined, ssl: false },
})

type Credentials = Pick<DatabaseUrl, 'user' | 'password' | 'database'>

function driverOptions(url: DatabaseUrl, host: Host, options: LaneOptions<Sql>): DriverOptions {
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
