/**
 * A pool of connections for long `COPY … TO STDOUT` reads, separate from all others so that no mail waits behind a
 * reader.
 */

import { TCP_TIMEOUTS } from '../connection.ts'
import { type DatabaseAddress, DatabaseError, keepsConnection, statementError } from '../database-error.ts'
import { parseAddress } from '../database-url.ts'
import { openPgClient, type PgClientConnection } from './client.ts'
import { CopyOutStream, EventLoopYield } from './copy-out.ts'
import { toDriverError } from './driver.ts'

export interface CopyOutOptions {
  readonly applicationName: string
  /** Session settings; they override the defaults. */
  readonly settings: Readonly<Record<string, string | number>>
  readonly statementTimeoutMs: number
  /** Idle connections that are kept. The caller limits how many reads run at a time. */
  readonly idleMax: number
}

const CONNECT_TIMEOUT_MS = 5_000
/** Allocating the pressure costs a collection; shorter reads end before that pays. */
const LONG_BYTES = 8 * 2 ** 20

export class CopyOutPool {
  readonly #url: string
  readonly #address: DatabaseAddress
  readonly #options: CopyOutOptions
  /** Shared by all reads. */
  readonly #yielder = new EventLoopYield()
  readonly #gcPressure = new GcPressure()
  readonly #idle: PgClientConnection[] = []
  readonly #busy = new Set<PgClientConnection>()
  #isClosed = false

  /** @throws DatabaseError `db_url_invalid` */
  constructor(url: string, options: CopyOutOptions) {
    this.#url = url
    this.#address = parseAddress(url)
    this.#options = options
  }

  /**
   * Yields the output of one `COPY … TO STDOUT` as `CopyOutStream.chunks` does: a chunk is valid until the next one is
   * requested. Ending the iteration or aborting `signal` cancels the statement on the server at once.
   * @throws DatabaseError
   */
  async *read(statement: string, signal?: AbortSignal): AsyncGenerator<Buffer, void, undefined> {
    const used = await this.#acquire()
    let isUsable = false
    const cancel = () => used.connection.destroy()
    if (signal?.aborted) cancel()
    signal?.addEventListener('abort', cancel, { once: true })
    try {
      yield* this.#underPressure(used.client.query(new CopyOutStream(statement, this.#yielder)).chunks())
      isUsable = true
    } catch (error) {
      const known = toDriverError(error)
      isUsable = keepsConnection(known)
      throw statementError(known, this.#address)
    } finally {
      signal?.removeEventListener('abort', cancel)
      this.#release(used, isUsable)
    }
  }

  async *#underPressure(chunks: AsyncGenerator<Buffer, void, undefined>): AsyncGenerator<Buffer, void, undefined> {
    let bytes = 0
    let release: (() => void) | undefined
    try {
      for await (const chunk of chunks) {
        bytes += chunk.length
        if (bytes > LONG_BYTES) release ??= this.#gcPressure.hold()
        yield chunk
      }
    } finally {
      release?.()
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    for (const { connection } of this.#busy) connection.destroy()
    await Promise.all(this.#idle.splice(0).map(({ connection }) => connection.close()))
  }

  async #acquire(): Promise<PgClientConnection> {
    if (this.#isClosed) throw new DatabaseError('db_closed', 'This database connection pool is closed')
    let used = this.#idle.pop()
    while (used?.connection.isClosed) used = this.#idle.pop()
    used ??= await this.#open()
    this.#busy.add(used)
    return used
  }

  #open(): Promise<PgClientConnection> {
    const { applicationName, settings, statementTimeoutMs } = this.#options
    const session = { ...SESSION, statement_timeout: statementTimeoutMs, ...settings }
    return openPgClient(this.#url, { applicationName, connectTimeoutMs: CONNECT_TIMEOUT_MS, session })
  }

  #release(used: PgClientConnection, isUsable: boolean): void {
    this.#busy.delete(used)
    const { connection } = used
    if (!isUsable || connection.isClosed) return connection.destroy()
    if (this.#isClosed || this.#idle.length >= this.#options.idleMax) return void connection.close()
    this.#idle.push(used)
  }
}

const SESSION = {
  ...TCP_TIMEOUTS,
  lock_timeout: 1_000,
  // The statement of a killed broker ends, so that its snapshot doesn't keep dead rows.
  client_connection_check_interval: 1_000,
}

const PRESSURE_BYTES = 256 * 2 ** 20

/**
 * Makes garbage collection rarer during long reads. Bun collects whenever a quarter of the bytes it counts are new,
 * which the buffers of a read reach every 30 ms, and every other collection is a full one. Bytes that are counted but
 * never written to, so that they take no memory, make it collect a sixth as often. The buffers don't need it: they are
 * freed by hand.
 */
class GcPressure {
  #holders = 0
  #bytes: ArrayBuffer | null = null

  /** Returns a function that releases it; call that once. */
  hold(): () => void {
    this.#holders += 1
    // A resizable buffer is newly mapped; any other may reuse memory, which would be overwritten with zeros.
    this.#bytes ??= new ArrayBuffer(PRESSURE_BYTES, { maxByteLength: PRESSURE_BYTES })
    return () => {
      this.#holders -= 1
      if (this.#holders === 0) this.#bytes = null
    }
  }
}
