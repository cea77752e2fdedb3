/**
 * One connection. The driver (postgres.js) keeps a connection's slot over many sockets, and under Bun such a slot can
 * die for good: a write that was scheduled when the socket closed is cancelled but still remembered as scheduled, so
 * the next socket's first message is never sent. It also never settles a query whose peer has gone silent. So here one
 * driver instance has exactly one socket, which is ours to destroy, and a lane that failed is replaced, never revived.
 */
import type { Socket } from 'node:net'
import postgres from 'postgres'
import { columnTypes } from './column-types.ts'
import { type Address, connectError, DatabaseError } from './database-error.ts'
import { type Backend, cancelStatement, destroy, openSocket } from './server-socket.ts'

export type Sql = postgres.Sql

export interface Lane<Driver> {
  readonly driver: Driver
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

/** @throws DatabaseError when `url` is no address of a Postgres database (`db_url_invalid`). */
export function parseAddress(url: string): Address {
  const sentence = 'The database URL must look like postgres://user:password@host:5432/database'
  const parsed = URL.canParse(url) ? new URL(url) : undefined
  if (!parsed || !['postgres:', 'postgresql:'].includes(parsed.protocol) || parsed.pathname.length < 2) {
    throw new DatabaseError('db_url_invalid', sentence)
  }
  try {
    decodeURIComponent(parsed.password)
    return {
      host: decodeURIComponent(parsed.hostname).replace(/^\[|\]$/g, '') || 'localhost',
      port: Number(parsed.port || 5432),
      user: decodeURIComponent(parsed.username),
      database: decodeURIComponent(parsed.pathname.slice(1)),
    }
  } catch {
    // A stray % in it: the sentence must not quote the URL, which holds the password.
    throw new DatabaseError('db_url_invalid', `${sentence}, with special characters percent-encoded`)
  }
}

/**
 * Connects, and asks the server for an answer before anything else is sent: whatever fails up to here was not done.
 * @throws DatabaseError `db_not_done`, `db_refused`, `db_url_invalid`
 */
export async function openLane(url: string, options: LaneOptions<Sql>): Promise<Lane<Sql>> {
  const address = parseAddress(url)
  const lane = newLane(url, address, options)
  const timer = setTimeout(lane.cut, options.connectTimeoutMs)
  try {
    await lane.ping()
    return lane
  } catch (error) {
    lane.cut()
    throw connectError(error, address)
  } finally {
    clearTimeout(timer)
  }
}

function newLane(url: string, address: Address, options: LaneOptions<Sql>): Lane<Sql> {
  let socket: Socket | undefined
  let backend: Partial<Backend> = {}
  let isGone = false
  const gone = () => {
    if (isGone) return
    isGone = true
    options.onGone?.(lane)
  }
  const sql = postgres(url, {
    max: 1,
    max_pipeline: 1,
    max_lifetime: null,
    connect_timeout: options.connectTimeoutMs / 1000,
    keep_alive: 10,
    fetch_types: false,
    types: columnTypes,
    connection: { application_name: options.applicationName, ...options.session },
    onnotice: (notice) => options.onNotice?.(String(notice.message)),
    onclose: gone,
    socket: () => {
      if (socket) throw Object.assign(new Error('closed before it was ready'), { code: 'CONNECTION_CLOSED' })
      socket = openSocket(address)
      return socket
    },
  } as postgres.Options<Record<string, postgres.PostgresType>>)
  const end = (timeoutMs: number) => sql.end({ timeout: timeoutMs / 1000 }).finally(() => destroy(socket))
  const lane: Lane<Sql> = {
    driver: sql as Sql,
    openedAt: performance.now(),
    get isGone() {
      return isGone
    },
    ping: async () => {
      const { state } = await sql`select 1`.simple()
      backend = state as unknown as Partial<Backend>
    },
    row: async (text) => {
      const [row] = await sql.unsafe(text).values()
      return row as readonly (string | null)[]
    },
    cut: () => {
      gone()
      destroy(socket)
      cancelStatement(address, backend)
      void end(0)
    },
    retire: () => {
      isGone = true
      return end(1000)
    },
  }
  return lane
}
