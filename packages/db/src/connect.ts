/**
 * The database as everything above sees it: `run` one statement, bounded in time, with errors that say what the caller
 * may do next. Behind it stands a small pool that survives what connections do (see `lane.ts`).
 */
import {
  type Address,
  DatabaseError,
  leavesConnectionWhole,
  notDone,
  statementError,
  timedOut,
} from './database-error.ts'
import { parseAddress } from './database-url.ts'
import { type Lane, type LaneOptions, openLane, type Sql } from './lane.ts'
import { openPipeLane, type Pipe } from './pipe-lane.ts'
import type { Transport } from './server-socket.ts'

export interface Connections<Driver> {
  readonly address: Address
  /** Of the connection that was opened last; a pool that is open has one. */
  readonly transport: Transport | null
  /** Statements that wait for a free connection. */
  readonly waitingCount: number
  /**
   * Runs one statement on a free connection and bounds it by the client's own clock. A statement that timed out may
   * still run later on the server, so a write must be fenced by its parameters. Statements are prepared unless asked
   * otherwise: `run((sql) => sql.unsafe(text, values, { prepare: false }))`. Never `sql.begin` here: it is not atomic.
   * @throws DatabaseError `db_unavailable`, `db_not_done`, `db_refused`, `db_closed`
   */
  run<T>(statement: (driver: Driver) => PromiseLike<T>, options?: { timeoutMs?: number }): Promise<T>
  /** Cuts every connection at once. What runs on them fails; what waits goes over new ones. */
  reconnect(): void
  /** Lets running statements finish for up to two seconds, then ends every connection. */
  close(): Promise<void>
}

export type Database = Connections<Sql>
/** Connections that run several prepared statements as one transaction, with binary parameters and `COPY`. */
export type Pipeline = Connections<Pipe>

/** Returns why a new connection may not be used, or null, by what a statement answers on it. */
export type Admission = (row: (text: string) => Promise<readonly (string | null)[]>) => Promise<string | null>

export interface DatabaseOptions {
  connections?: number
  /** The server's own limit of a statement; keep it below `queryTimeoutMs`, so that the server's answer comes first. */
  statementTimeoutMs?: number
  /** From the call to the answer, waiting for a free connection included. */
  queryTimeoutMs?: number
  connectTimeoutMs?: number
  /** Statements that may wait for a free connection; one more is not done. */
  waitingMax?: number
  /** An idle connection is asked for a sign of life this often. */
  probeMs?: number
  /** A connection older than this is replaced, so that a server's memory and a moved host name are let go. */
  lifetimeMs?: number
  applicationName?: string
  /** Settings of each session, over the ones all sessions have. */
  settings?: Record<string, string | number>
  onNotice?: (message: string) => void
  /** A connection was given up; the next statement opens a fresh one. */
  onConnectionLost?: () => void
  admit?: Admission
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

/**
 * A network that falls silent in the middle of a write leaves the server with an open transaction and its row locks; it is
 * no idle one, and by default the server gives it up after 2 h 11 min. So: after 25 seconds. Seconds but for the last, ms.
 */
export const SILENT_CLIENT = {
  tcp_keepalives_idle: 10,
  tcp_keepalives_interval: 5,
  tcp_keepalives_count: 3,
  tcp_user_timeout: 25_000,
}

/** Opens a pool and its first connection. @throws DatabaseError `db_url_invalid`, `db_not_done`, `db_refused` */
export async function openDatabase(url: string, options: DatabaseOptions = {}): Promise<Database> {
  return openPool(url, { ...defaults, ...options }, openLane)
}

/** One connection, unless more are asked for. @throws DatabaseError `db_url_invalid`, `db_not_done`, `db_refused` */
export async function openPipeline(url: string, options: DatabaseOptions = {}): Promise<Pipeline> {
  return openPool(url, { ...defaults, connections: 1, ...options }, openPipeLane)
}

type PoolOptions = typeof defaults & DatabaseOptions
type OpenLane<Driver> = (url: string, options: LaneOptions<Driver>) => Promise<Lane<Driver>>

async function openPool<Driver>(url: string, options: PoolOptions, open: OpenLane<Driver>): Promise<Pool<Driver>> {
  const pool = new Pool(url, options, open)
  try {
    await pool.probe()
    return pool
  } catch (error) {
    await pool.close()
    throw error
  }
}

interface Waiter<Driver> {
  take(lane: Lane<Driver>): void
  fail(error: Error): void
}

/** A lane is in `idle`, or with the one statement that runs on it, or gone. */
class Pool<Driver> implements Connections<Driver> {
  readonly address: Address
  transport: Transport | null = null
  readonly #url: string
  readonly #options: PoolOptions
  readonly #openLane: OpenLane<Driver>
  readonly #idle = new Map<Lane<Driver>, number>() // since when
  readonly #busy = new Set<Lane<Driver>>()
  readonly #waiting = new Set<Waiter<Driver>>()
  readonly #probes: ReturnType<typeof setInterval>
  #opening = 0
  /** Counts the calls of `reconnect`. */
  #generation = 0
  #drained: (() => void) | undefined
  #isClosed = false

  constructor(url: string, options: PoolOptions, open: OpenLane<Driver>) {
    this.address = parseAddress(url)
    this.#url = url
    this.#options = options
    this.#openLane = open
    this.#probes = setInterval(() => this.#probeIdle(), options.probeMs)
    this.#probes.unref()
  }

  run<T>(statement: (driver: Driver) => PromiseLike<T>, options: { timeoutMs?: number } = {}): Promise<T> {
    return this.#use((lane) => statement(lane.driver), options)
  }

  get waitingCount(): number {
    return this.#waiting.size
  }

  /** Waits for any answer of the server. */
  async probe(): Promise<void> {
    await this.#use((lane) => lane.ping(), {})
  }

  async #use<T>(ask: (lane: Lane<Driver>) => PromiseLike<T>, options: { timeoutMs?: number }): Promise<T> {
    if (this.#isClosed) throw closedError()
    const timeoutMs = options.timeoutMs ?? this.#options.queryTimeoutMs
    const deadline = performance.now() + timeoutMs
    const lane = this.#takeIdle() ?? (await this.#wait(timeoutMs))
    try {
      const answer = ask(lane)
      return await this.#bounded(answer, Math.max(1, deadline - performance.now()), timeoutMs).catch((error) => {
        if (!leavesConnectionWhole(error)) lane.cut()
        throw statementError(error, this.address)
      })
    } finally {
      this.#release(lane)
    }
  }

  reconnect(): void {
    this.#generation++ // what is being opened is admitted again
    const lanes = [...this.#idle.keys(), ...this.#busy]
    this.#idle.clear()
    for (const lane of lanes) lane.cut()
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    clearInterval(this.#probes)
    for (const waiter of this.#waiting) waiter.fail(closedError())
    this.#waiting.clear()
    const retired = [...this.#idle.keys()].map((lane) => lane.retire())
    if (this.#busy.size > 0) await settledWithin(new Promise<void>((drained) => (this.#drained = drained)), 2_000)
    for (const lane of this.#busy) lane.cut()
    await Promise.all(retired)
  }

  #takeIdle(): Lane<Driver> | undefined {
    let lane: Lane<Driver> | undefined
    for (const idle of this.#idle.keys()) lane = idle // the last one used; the others are left to the probe
    if (!lane) return undefined
    this.#idle.delete(lane)
    this.#busy.add(lane)
    return lane
  }

  #wait(timeoutMs: number): Promise<Lane<Driver>> {
    if (this.#waiting.size >= this.#options.waitingMax)
      return Promise.reject(notDone('too many statements wait for a connection', this.address))
    return new Promise((resolve, reject) => {
      const leave = () => {
        clearTimeout(timer)
        this.#waiting.delete(waiter)
      }
      const waiter: Waiter<Driver> = {
        take: (lane) => {
          leave()
          resolve(lane)
        },
        fail: (error) => {
          leave()
          reject(error)
        },
      }
      const timer = setTimeout(
        () => waiter.fail(notDone(`no connection within ${timeoutMs} ms`, this.address)),
        timeoutMs,
      )
      this.#waiting.add(waiter)
      this.#openMissing()
    })
  }

  /** Rejects after the time is over, and gives the statement's own late answer no way to be mistaken for another. */
  #bounded<T>(answer: PromiseLike<T>, leftMs: number, timeoutMs: number): Promise<T> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(timedOut(this.address, timeoutMs)), leftMs)
      answer.then(
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
    const room = this.#options.connections - this.#idle.size - this.#busy.size - this.#opening
    for (let i = Math.min(room, this.#waiting.size - this.#opening); i > 0; i--) void this.#open()
  }

  async #open(): Promise<void> {
    this.#opening++
    try {
      const onGone = (gone: Lane<Driver>) => this.#gone(gone)
      const lane = await this.#openLane(this.#url, { ...this.#options, session: this.#session(), onGone })
      for (let generation = -1; generation !== this.#generation; ) {
        generation = this.#generation
        await this.#admit(lane)
      }
      this.transport = lane.transport
      this.#opening--
      this.#release(lane)
    } catch (error) {
      this.#opening--
      first(this.#waiting)?.fail(error as Error)
      this.#openMissing()
    }
  }

  /** A lane that is not admitted has run no statement of the pool's. */
  async #admit(lane: Lane<Driver>): Promise<void> {
    const { admit, queryTimeoutMs } = this.#options
    if (!admit) return
    const asked = this.#bounded(admit(lane.row), queryTimeoutMs, queryTimeoutMs)
    const reason = await asked.catch(() => 'it did not say which server it is')
    if (reason === null) return
    lane.cut()
    throw notDone(reason, this.address)
  }

  #session(): Record<string, string | number> {
    return {
      synchronous_commit: 'on',
      statement_timeout: this.#options.statementTimeoutMs,
      lock_timeout: 1_000,
      idle_in_transaction_session_timeout: 10_000,
      ...SILENT_CLIENT,
      // A prepared statement's generic plan, once made for an empty table, cost a grown queue three quarters of its speed.
      plan_cache_mode: 'force_custom_plan',
      ...this.#options.settings,
    }
  }

  #release(lane: Lane<Driver>): void {
    this.#busy.delete(lane)
    const isOld = performance.now() - lane.openedAt > this.#options.lifetimeMs
    if (!lane.isGone && (isOld || this.#isClosed)) void lane.retire()
    if (this.#busy.size === 0) this.#drained?.()
    if (lane.isGone) return this.#openMissing()
    const waiter = first(this.#waiting)
    if (!waiter) {
      this.#idle.set(lane, performance.now())
      return
    }
    this.#busy.add(lane)
    waiter.take(lane)
  }

  #gone(lane: Lane<Driver>): void {
    const wasOurs = this.#idle.delete(lane) || this.#busy.has(lane) // not one that failed to open
    if (wasOurs && !this.#isClosed) this.#options.onConnectionLost?.()
  }

  #probeIdle(): void {
    const before = performance.now() - this.#options.probeMs / 2
    for (const [lane, since] of this.#idle) if (since < before) void this.#probeOne(lane)
  }

  async #probeOne(lane: Lane<Driver>): Promise<void> {
    this.#idle.delete(lane)
    this.#busy.add(lane)
    const patienceMs = Math.min(2_000, this.#options.queryTimeoutMs)
    try {
      await this.#bounded(lane.ping(), patienceMs, patienceMs)
    } catch {
      lane.cut() // whatever it was: this connection gave no sign of life
    } finally {
      this.#release(lane)
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
