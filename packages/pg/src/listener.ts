/** Opens a connection for `LISTEN` and `NOTIFY`. It does not reconnect. */
import { TCP_TIMEOUTS } from './connection.ts'
import { type DatabaseAddress, notExecuted, statementError, timedOut } from './database-error.ts'
import { parseAddress } from './database-url.ts'
import { openPipelineConnection, type PipelineConnection } from './pipeline/client.ts'

/** The server's limit for the payload, in bytes. */
export const NOTIFICATION_LENGTH_MAX = 7_999

export interface ListenerEvents {
  onNotification(channel: string, payload: string): void
  /** Called once when the connection is lost, but not by `close`. */
  onClosed(): void
}

export interface Notification {
  readonly channel: string
  readonly payload: string
}

export interface Listener {
  /**
   * Listens to channels. Their names consist of lower-case letters, digits and `_`. Resolves once the server delivers
   * their notifications.
   * @throws DatabaseError
   */
  listen(channels: readonly string[]): Promise<void>
  unlisten(channel: string): Promise<void>
  /** Sends all notifications in one transaction. @throws DatabaseError if they may have been sent */
  notify(notifications: readonly Notification[]): Promise<void>
  /** Pings the server. Closes the connection if no reply arrives. @throws DatabaseError */
  probe(): Promise<void>
  close(): Promise<void>
}

const CONNECT_TIMEOUT_MS = 5_000
const REPLY_TIMEOUT_MS = 5_000

const SESSION = {
  ...TCP_TIMEOUTS,
  statement_timeout: REPLY_TIMEOUT_MS,
  synchronous_commit: 'off', // notifications are never on disk
}

/** @throws DatabaseError `db_url_invalid`, `db_not_executed`, `db_refused` */
export async function openListener(url: string, applicationName: string, events: ListenerEvents): Promise<Listener> {
  const connection = await openPipelineConnection(url, {
    applicationName,
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
    session: SESSION,
    onNotification: events.onNotification,
    onLost: events.onClosed,
  })
  return new PipelineListener(connection, parseAddress(url))
}

class PipelineListener implements Listener {
  readonly #connection: PipelineConnection
  readonly #address: DatabaseAddress
  /** The latest request. Requests run one after another. */
  #last: Promise<unknown> = Promise.resolve()

  constructor(connection: PipelineConnection, address: DatabaseAddress) {
    this.#connection = connection
    this.#address = address
  }

  async listen(channels: readonly string[]): Promise<void> {
    await this.#run(() => this.#connection.driver.run(channels.map((channel) => ({ text: `listen ${channel}` }))))
  }

  async unlisten(channel: string): Promise<void> {
    await this.#run(() => this.#connection.driver.run([{ text: `unlisten ${channel}` }]))
  }

  async notify(notifications: readonly Notification[]): Promise<void> {
    const steps = notifications.map(({ channel, payload }) => ({ text: NOTIFY, parameters: [channel, payload] }))
    await this.#run(() => this.#connection.driver.run(steps))
  }

  async probe(): Promise<void> {
    await this.#run(() => this.#connection.ping())
  }

  close(): Promise<void> {
    return this.#connection.close()
  }

  /** Runs a request with a time limit, because on a silent connection it would never reject. */
  async #run(request: () => PromiseLike<unknown>): Promise<void> {
    if (this.#connection.isClosed) throw notExecuted('the connection is closed', this.#address)
    const reply = this.#last.then(request)
    this.#last = reply.catch(() => undefined)
    const silence = Promise.withResolvers<never>()
    const timer = setTimeout(() => silence.reject(timedOut(this.#address, REPLY_TIMEOUT_MS)), REPLY_TIMEOUT_MS)
    try {
      await Promise.race([reply, silence.promise])
    } catch (error) {
      this.#connection.destroy()
      throw statementError(error, this.#address)
    } finally {
      clearTimeout(timer)
    }
  }
}

const NOTIFY = 'select pg_notify($1, $2)'
