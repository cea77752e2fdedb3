/**
 * Runs statements on a small pool of connections. Limits their duration, and throws errors that show whether a retry is
 * safe.
 */
import {
  type DatabaseConnection,
  type DatabaseConnectionOptions,
  openConnection,
  type Sql,
  TCP_TIMEOUTS,
} from './connection.ts'
import {
  type DatabaseAddress,
  DatabaseError,
  keepsConnection,
  notExecuted,
  statementError,
  timedOut,
} from './database-error.ts'
import { parseAddress } from './database-url.ts'
import { openPipelineConnection } from './pipeline/client.ts'
import type { BoundStatement, PreparedPipeline } from './pipeline/prepared.ts'
import type { Transport } from './socket.ts'

export interface ConnectionPool<Driver> {
  readonly address: DatabaseAddress
  /** The newest connection's transport. */
  readonly transport: Transport | null
  readonly waitingCount: number
  /**
   * sql.unsafe(text, values, { prepare: false }))`. Never use `sql.begin` here, because it is not atomic. => Runs one
   * statement on a free connection. After a timeout, it may still run later on the server, so a write needs a
   * parameter, such as an epoch, that makes this harmless. Statements are prepared by default: `run((sql) =>
   * sql.unsafe(text, values, { prepare: false }))`. Never use `sql.begin`, which is not atomic here. =>
   * sql.unsafe(text, values, { prepare: false }))`. Never use `sql.begin` here, because it is not atomic.
   * @throws DatabaseError `db_unavailable`, `db_not_executed`, `db_refused`, `db_closed`
   */
  run<T>(statement: (driver: Driver) => PromiseLike<T>, options?: { timeoutMs?: number }): Promise<T>
  /** Destroys every connection. Running statements fail; waiting ones run on new connections. */
  reconnect(): void
  /** Closes every connection; waits at most two seconds for running statements. */
  close(): Promise<void>
}

export type Database = ConnectionPool<Sql>
/** Connections for prepared statements in one transaction, with binary parameters and `COPY`. */
export type Pipeline = ConnectionPool<PreparedPipeline>

/** Runs a statement that stays prepared, with values as text. */
export function runPrepared<Row extends object>(
  db: Database,
  { text, parameters }: BoundStatement<string | number>,
): Promise<Row[]> {
  return db.run((sql) => sql.unsafe<Row[]>(text, [...parameters], { prepare: true }))
}

/** Returns why a new connection must not be used, or null. */
export type ConnectionCheck = (
  queryRow: (text: string) => Promise<readonly (string | null)[]>,
) => Promise<string | null>

export interface DatabaseOptions {
  connections?: number
  /** The server's statement timeout, below `queryTimeoutMs`, so that its error arrives first. */
  statementTimeoutMs?: number
  /** The time limit from the call to the reply, including the wait for a connection. */
  queryTimeoutMs?: number
  connectTimeoutMs?: number
  /** The maximum number of waiting statements, beyond which they fail with `db_not_executed`. */
  waitingMax?: number
  /** How often an idle connection is pinged. */
  probeMs?: number
  /** The age at which a connection is replaced, to free the server's memory and to follow a changed host name. */
  lifetimeMs?: number
  applicationName?: string
  settings?: Record<string, string | number>
  onNotice?: (message: string) => void
  /** Called when a connection is lost or destroyed. */
  onConnectionLost?: () => void
  checkConnection?: ConnectionCheck
}

const defaults = {
  connections: 4,
  statementTimeoutMs: 5_000,
  queryTimeoutMs: 6_000,
  connectTimeoutMs: 5_000,
  waitingMax: 10_000,
  probeMs: 5_000,
  lifetimeMs: 1_800_000,
  applicationName: 'sealpost',
}

const CLOSE_TIMEOUT_MS = 2_000
const PING_TIMEOUT_MS = 2_000

/** Opens a pool and its first connection. @throws DatabaseError `db_url_invalid`, `db_not_executed`, `db_refused` */
export async function openDatabase(url: string, options: DatabaseOptions = {}): Promise<Database> {
  return openPool(url, { ...defaults, ...options }, openConnection)
}

/**
 * Opens a pool, by default with one connection.
 * @throws DatabaseError `db_url_invalid`, `db_not_executed`, `db_refused`
 */
export async function openPipeline(url: string, options: DatabaseOptions = {}): Promise<Pipeline> {
  return openPool(url, { ...defaults, connections: 1, ...options }, openPipelineConnection)
}

type PoolOptions = typeof defaults & DatabaseOptions
type Open<Driver> = (url: string, options: DatabaseConnectionOptions<Driver>) => Promise<DatabaseConnection<Driver>>

async function openPool<Driver>(url: string, options: PoolOptions, open: Open<Driver>): Promise<Pool<Driver>> {
  const pool = new Pool(url, options, open)
  try {
    await pool.ping()
    return pool
  } catch (error) {
    await pool.close()
    throw error
  }
}

interface Waiter<Driver> {
  take(connection: DatabaseConnection<Driver>): void
  fail(error: Error): void
}

/** A pool, each of whose connections is in `#idle`, in `#busy` with its statement, or closed. */
class Pool<Driver> implements ConnectionPool<Driver> {
  readonly address: DatabaseAddress
  transport: Transport | null = null
  readonly #url: string
  readonly #options: PoolOptions
  readonly #openConnection: Open<Driver>
  /** The idle connections, each with the time when it became idle. */
  readonly #idle = new Map<DatabaseConnection<Driver>, number>()
  readonly #busy = new Set<DatabaseConnection<Driver>>()
  readonly #waiting = new Set<Waiter<Driver>>()
  readonly #probes: ReturnType<typeof setInterval>
  #openingCount = 0
  #generation = 0
  #drained: (() => void) | undefined
  #isClosed = false

  constructor(url: string, options: PoolOptions, open: Open<Driver>) {
    this.address = parseAddress(url)
    this.#url = url
    this.#options = options
    this.#openConnection = open
    this.#probes = setInterval(() => this.#probeIdle(), options.probeMs)
    this.#probes.unref()
  }

  get waitingCount(): number {
    return this.#waiting.size
  }

  async ping(): Promise<void> {
    await this.run((_, connection) => connection.ping())
  }

  async run<T>(
    statement: (driver: Driver, connection: DatabaseConnection<Driver>) => PromiseLike<T>,
    options: { timeoutMs?: number } = {},
  ): Promise<T> {
    if (this.#isClosed) throw closedError()
    const timeoutMs = options.timeoutMs ?? this.#options.queryTimeoutMs
    const deadline = performance.now() + timeoutMs
    const connection = this.#takeIdle() ?? (await this.#wait(timeoutMs))
    try {
      const reply = statement(connection.driver, connection)
      return await this.#limit(reply, Math.max(1, deadline - performance.now()), timeoutMs).catch((error) => {
        if (!keepsConnection(error)) connection.destroy()
        throw statementError(error, this.address)
      })
    } finally {
      this.#release(connection)
    }
  }

  reconnect(): void {
    this.#generation++ // connections that are being opened are checked again
    const connections = [...this.#idle.keys(), ...this.#busy]
    this.#idle.clear()
    for (const connection of connections) connection.destroy()
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    clearInterval(this.#probes)
    for (const waiter of this.#waiting) waiter.fail(closedError())
    this.#waiting.clear()
    const closed = [...this.#idle.keys()].map((connection) => connection.close())
    if (this.#busy.size > 0)
      await settledWithin(new Promise<void>((drained) => (this.#drained = drained)), CLOSE_TIMEOUT_MS)
    for (const connection of this.#busy) connection.destroy()
    await Promise.all(closed)
  }

  /** Takes the connection used last; the probe keeps the others alive. */
  #takeIdle(): DatabaseConnection<Driver> | undefined {
    let last: DatabaseConnection<Driver> | undefined
    for (const connection of this.#idle.keys()) last = connection
    if (!last) return undefined
    this.#idle.delete(last)
    this.#busy.add(last)
    return last
  }

  #wait(timeoutMs: number): Promise<DatabaseConnection<Driver>> {
    if (this.#waiting.size >= this.#options.waitingMax)
      return Promise.reject(notExecuted('too many statements wait for a connection', this.address))
    return new Promise((resolve, reject) => {
      const leave = () => {
        clearTimeout(timer)
        this.#waiting.delete(waiter)
      }
      const waiter: Waiter<Driver> = {
        take: (connection) => {
          leave()
          resolve(connection)
        },
        fail: (error) => {
          leave()
          reject(error)
        },
      }
      const timer = setTimeout(
        () => waiter.fail(notExecuted(`no connection within ${timeoutMs} ms`, this.address)),
        timeoutMs,
      )
      this.#waiting.add(waiter)
      this.#openMissing()
    })
  }

  #limit<T>(reply: PromiseLike<T>, leftMs: number, timeoutMs: number): Promise<T> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(timedOut(this.address, timeoutMs)), leftMs)
      reply.then(
        (value) => {
          clearTimeout(timer)
          resolve(value)
        },
        (error) => {
          clearTimeout(timer)
          reject(error)
        },
      )
    })
  }

  #openMissing(): void {
    const room = this.#options.connections - this.#idle.size - this.#busy.size - this.#openingCount
    for (let i = Math.min(room, this.#waiting.size - this.#openingCount); i > 0; i--) void this.#open()
  }

  async #open(): Promise<void> {
    this.#openingCount++
    try {
      const onLost = (lost: DatabaseConnection<Driver>) => this.#lost(lost)
      const connection = await this.#openConnection(this.#url, { ...this.#options, session: this.#session(), onLost })
      for (let generation = -1; generation !== this.#generation; ) {
        generation = this.#generation
        await this.#check(connection)
      }
      this.transport = connection.transport
      this.#openingCount--
      this.#release(connection)
    } catch (error) {
      this.#openingCount--
      first(this.#waiting)?.fail(error as Error)
      this.#openMissing()
    }
  }

  async #check(connection: DatabaseConnection<Driver>): Promise<void> {
    const { checkConnection, queryTimeoutMs } = this.#options
    if (!checkConnection) return
    const checked = this.#limit(checkConnection(connection.queryRow), queryTimeoutMs, queryTimeoutMs)
    const reason = await checked.catch(() => 'its server could not be identified')
    if (reason === null) return
    connection.destroy()
    throw notExecuted(reason, this.address)
  }

  #session(): Record<string, string | number> {
    return {
      synchronous_commit: 'on',
      statement_timeout: this.#options.statementTimeoutMs,
      lock_timeout: 1_000,
      idle_in_transaction_session_timeout: 10_000,
      ...TCP_TIMEOUTS,
      // Generic plans from empty tables cost a full queue three quarters of its throughput.
      plan_cache_mode: 'force_custom_plan',
      ...this.#options.settings,
    }
  }

  #release(connection: DatabaseConnection<Driver>): void {
    this.#busy.delete(connection)
    const isOld = performance.now() - connection.openedAt > this.#options.lifetimeMs
    if (!connection.isClosed && (isOld || this.#isClosed)) void connection.close()
    if (this.#busy.size === 0) this.#drained?.()
    if (connection.isClosed) return this.#openMissing()
    if (this.#waiting.size === 0) {
      this.#idle.set(connection, performance.now())
      return
    }
    this.#busy.add(connection)
    first(this.#waiting)!.take(connection)
  }

  #lost(connection: DatabaseConnection<Driver>): void {
    const wasInPool = this.#idle.delete(connection) || this.#busy.has(connection) // false for a connection that failed to open
    if (wasInPool && !this.#isClosed) this.#options.onConnectionLost?.()
  }

  #probeIdle(): void {
    const before = performance.now() - this.#options.probeMs / 2
    for (const [connection, since] of this.#idle) if (since < before) void this.#probe(connection)
  }

  async #probe(connection: DatabaseConnection<Driver>): Promise<void> {
    this.#idle.delete(connection)
    this.#busy.add(connection)
    const timeoutMs = Math.min(PING_TIMEOUT_MS, this.#options.queryTimeoutMs)
    try {
      await this.#limit(connection.ping(), timeoutMs, timeoutMs)
    } catch {
      connection.destroy() // whatever the error, the connection did not reply
    } finally {
      this.#release(connection)
    }
  }
}

function closedError(): DatabaseError {
  return new DatabaseError('db_closed', 'This database connection pool is closed')
}

function first<T>(set: Set<T>): T | undefined {
  return set.values().next().value
}

async function settledWithin(promise: Promise<void>, ms: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined
  await Promise.race([promise, new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)))])
  clearTimeout(timer)
}
