/** A connection of its own on which notifications are heard and sent. It is not replaced when it is lost: its owner does that. */
import { SILENT_CLIENT } from './connect.ts'
import { type Address, notDone, statementError, timedOut } from './database-error.ts'
import { parseAddress } from './database-url.ts'
import type { Lane } from './lane.ts'
import { openPipeLane, type Pipe } from './pipe-lane.ts'

/** The server takes 7,999 bytes of text. */
export const NOTIFICATION_LENGTH_MAX = 7_999

export interface ListenerPorts {
  heard(channel: string, payload: string): void
  /** Once, however it ended, but for `close`. */
  gone(): void
}

export interface Notification {
  readonly channel: string
  readonly payload: string
}

export interface Listener {
  /** Channels of lower-case letters, digits and `_`. Settles when they are listened to. @throws DatabaseError */
  listen(channels: readonly string[]): Promise<void>
  /** @throws DatabaseError */
  unlisten(channel: string): Promise<void>
  /** In one transaction. @throws DatabaseError: whether they were sent is unknown */
  notify(notifications: readonly Notification[]): Promise<void>
  /** Asks for a sign of life; without one the connection is over. @throws DatabaseError */
  probe(): Promise<void>
  close(): Promise<void>
}

const CONNECT_WITHIN_MS = 5_000
const ANSWER_WITHIN_MS = 5_000

const SESSION = {
  ...SILENT_CLIENT,
  statement_timeout: ANSWER_WITHIN_MS,
  synchronous_commit: 'off', // what is notified is nowhere on the disk
}

/** @throws DatabaseError `db_url_invalid`, `db_not_done`, `db_refused` */
export async function openListener(url: string, applicationName: string, ports: ListenerPorts): Promise<Listener> {
  const lane = await openPipeLane(url, {
    applicationName,
    connectTimeoutMs: CONNECT_WITHIN_MS,
    session: SESSION,
    onNotification: ports.heard,
    onGone: ports.gone,
  })
  return new PipeListener(lane, url)
}

class PipeListener implements Listener {
  private readonly lane: Lane<Pipe>
  private readonly address: Address
  /** Ends with whatever was asked last: the driver would have them ask in turn, too. */
  private last: Promise<unknown> = Promise.resolve()

  constructor(lane: Lane<Pipe>, url: string) {
    this.lane = lane
    this.address = parseAddress(url)
  }

  async listen(channels: readonly string[]): Promise<void> {
    await this.run(() => this.lane.driver.run(channels.map((channel) => ({ text: `listen ${channel}` }))))
  }

  async unlisten(channel: string): Promise<void> {
    await this.run(() => this.lane.driver.run([{ text: `unlisten ${channel}` }]))
  }

  async notify(notifications: readonly Notification[]): Promise<void> {
    const steps = notifications.map(({ channel, payload }) => ({ text: NOTIFY, parameters: [channel, payload] }))
    await this.run(() => this.lane.driver.run(steps))
  }

  async probe(): Promise<void> {
    await this.run(() => this.lane.ping())
  }

  close(): Promise<void> {
    return this.lane.retire()
  }

  /** A connection that has fallen silent never answers by itself. */
  private async run(ask: () => PromiseLike<unknown>): Promise<void> {
    const { address, lane } = this
    if (lane.isGone) throw notDone('the connection is gone', address)
    const answer = this.last.then(ask)
    this.last = answer.catch(() => undefined)
    const silence = Promise.withResolvers<never>()
    const timer = setTimeout(() => silence.reject(timedOut(address, ANSWER_WITHIN_MS)), ANSWER_WITHIN_MS)
    try {
      await Promise.race([answer, silence.promise])
    } catch (error) {
      lane.cut()
      throw statementError(error, address)
    } finally {
      clearTimeout(timer)
    }
  }
}

const NOTIFY = 'select pg_notify($1, $2)'
