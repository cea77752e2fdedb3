/**
 * Connections for long answers: what a `COPY … TO STDOUT` says, a buffer at a time, as fast as it is taken and no faster.
 * They are apart from all others, so that nobody's mail waits behind a reader.
 */
import type { Client } from 'pg'
import { Ballast } from './ballast.ts'
import { SILENT_CLIENT } from './connect.ts'
import { CopyAnswer } from './copy-answer.ts'
import { type Address, DatabaseError, leavesConnectionWhole, statementError } from './database-error.ts'
import { parseAddress } from './database-url.ts'
import type { Lane } from './lane.ts'
import { asDriverError } from './pipe-driver.ts'
import { openBoth, type Pipe } from './pipe-lane.ts'
import { Turnstile } from './turnstile.ts'

export interface CopyOptions {
  readonly applicationName: string
  /** Settings of each session, over the ones all sessions have. */
  readonly settings: Readonly<Record<string, string | number>>
  /** A statement that takes longer is ended by the server. */
  readonly statementTimeoutMs: number
  /** Connections that are kept while nothing runs on them; how many run at a time is up to the caller. */
  readonly idleMax: number
}

interface Link {
  readonly client: Client
  readonly lane: Lane<Pipe>
}

const CONNECT_TIMEOUT_MS = 5_000
/** To take up ballast costs a collection: a shorter answer is over before it pays. */
const LONG_BYTES = 8 * 2 ** 20

export class CopyLanes {
  readonly #url: string
  readonly #address: Address
  readonly #options: CopyOptions
  /** All of them together. */
  readonly #turnstile = new Turnstile()
  readonly #ballast = new Ballast()
  readonly #idle: Link[] = []
  readonly #busy = new Set<Link>()
  #isClosed = false

  /** @throws DatabaseError `db_url_invalid` */
  constructor(url: string, options: CopyOptions) {
    this.#url = url
    this.#address = parseAddress(url)
    this.#options = options
  }

  /**
   * What one `COPY … TO STDOUT` says, as `CopyAnswer` gives it: each piece is good until the next is asked for. Whoever stops reading, or aborts `signal`, ends the statement on the server at once.
   * @throws DatabaseError
   */
  async *read(statement: string, signal?: AbortSignal): AsyncGenerator<Buffer, void, undefined> {
    const link = await this.#take()
    let isWhole = false
    const cut = () => link.lane.cut()
    if (signal?.aborted) cut()
    signal?.addEventListener('abort', cut, { once: true })
    try {
      yield* this.#weighted(link.client.query(new CopyAnswer(statement, this.#turnstile)).chunks())
      isWhole = true
    } catch (error) {
      const known = asDriverError(error)
      isWhole = leavesConnectionWhole(known)
      throw statementError(known, this.#address)
    } finally {
      signal?.removeEventListener('abort', cut)
      this.#give(link, isWhole)
    }
  }

  async *#weighted(chunks: AsyncGenerator<Buffer, void, undefined>): AsyncGenerator<Buffer, void, undefined> {
    let bytes = 0
    let letGo: (() => void) | undefined
    try {
      for await (const chunk of chunks) {
        bytes += chunk.length
        if (bytes > LONG_BYTES) letGo ??= this.#ballast.hold()
        yield chunk
      }
    } finally {
      letGo?.()
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    for (const { lane } of this.#busy) lane.cut()
    await Promise.all(this.#idle.splice(0).map(({ lane }) => lane.retire()))
  }

  async #take(): Promise<Link> {
    if (this.#isClosed) throw new DatabaseError('db_closed', 'This database connection pool is closed')
    for (let link = this.#idle.pop(); link; link = this.#idle.pop()) if (!link.lane.isGone) return this.#begin(link)
    const { applicationName, settings, statementTimeoutMs } = this.#options
    const session = { ...SESSION, statement_timeout: statementTimeoutMs, ...settings }
    return this.#begin(await openBoth(this.#url, { applicationName, connectTimeoutMs: CONNECT_TIMEOUT_MS, session }))
  }

  #begin(link: Link): Link {
    this.#busy.add(link)
    return link
  }

  #give(link: Link, isWhole: boolean): void {
    this.#busy.delete(link)
    const { lane } = link
    if (!isWhole || lane.isGone) return lane.cut()
    if (this.#isClosed || this.#idle.length >= this.#options.idleMax) return void lane.retire()
    this.#idle.push(link)
  }
}

const SESSION = {
  ...SILENT_CLIENT,
  lock_timeout: 1_000,
  // A broker that was killed leaves no statement behind that holds up the clearing of dead rows.
  client_connection_check_interval: 1_000,
}
