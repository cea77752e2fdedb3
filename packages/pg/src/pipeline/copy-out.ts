/**
 * Reads a `COPY … TO STDOUT` by taking rows off the connection before the driver (`pg`) parses them. This costs a third
 * of the driver's own stream, which separates every message.
 */
import type { Connection } from 'pg'
import { TCP_TIMEOUTS } from '../connection.ts'
import { type DatabaseAddress, DatabaseError, keepsConnection, statementError } from '../database-error.ts'
import { parseAddress } from '../database-url.ts'
import { openPgClient, type PgClientConnection } from './client.ts'
import { internalsOf, type PgConnection, PgQuery, toDriverError } from './driver.ts'
import { RowInterceptor } from './intercept.ts'

const COPY_DATA = 'd'
/** The minimum size of buffers that are freed. A smaller one may share its memory. */
const FREED_BYTES_MIN = 64 * 1024
const nothing = () => undefined

function free({ buffer }: Buffer): void {
  if (buffer.byteLength >= FREED_BYTES_MIN) (buffer as ArrayBuffer).transfer(0)
}

/** Runs one statement on one connection; read `chunks` once. */
class CopyOutStream extends PgQuery {
  readonly #statement: string
  readonly #yielder: EventLoopYield
  readonly #interceptor = new RowInterceptor(COPY_DATA, (bytes) => this.#received(bytes))
  readonly #unread: Buffer[] = []
  #connection: PgConnection | undefined
  #error: { readonly is: unknown } | undefined
  #isEnded = false
  #wake: () => void = nothing

  constructor(statement: string, yielder: EventLoopYield) {
    super()
    this.#statement = statement
    this.#yielder = yielder
  }

  /**
   * Yields CopyData messages (the byte 100, an int32 length that includes itself, a row) in chunks of up to half a
   * megabyte, which may begin and end inside a message. A chunk is valid until the next one is requested. Its memory is
   * then freed, because garbage collection would cost more. Reads the socket only while a chunk is awaited.
   * @throws whatever the driver throws
   */
  async *chunks(): AsyncGenerator<Buffer, void, undefined> {
    for (;;) {
      for (let bytes = this.#unread.shift(); bytes; bytes = this.#unread.shift()) {
        yield bytes
        if (bytes.buffer !== this.#unread[0]?.buffer) free(bytes)
      }
      if (this.#isEnded && this.#error) throw this.#error.is
      if (this.#isEnded) return
      await this.#yielder.next()
      await this.#more()
    }
  }

  #more(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve
      if (this.#isEnded || this.#unread.length > 0) resolve()
      else this.#connection?.stream.resume()
    })
  }

  submit(connection: Connection): void {
    this.#connection = internalsOf(connection)
    this.#interceptor.attach(this.#connection.stream)
    this.#connection.query(this.#statement)
  }

  #received(bytes: Buffer): void {
    this.#unread.push(bytes)
    this.#connection?.stream.pause()
    this.#wake()
  }

  protected failed(error: unknown): void {
    this.#error = { is: error }
    this.#end()
  }
  handleReadyForQuery(): void {
    this.#end()
  }
  #end(): void {
    this.#isEnded = true
    this.#interceptor.detach()
    this.#wake()
  }
}

/** Resumes one task per turn of the event loop, so that long reads leave room for other work. */
class EventLoopYield {
  readonly #waiting: (() => void)[] = []
  #isScheduled = false

  next(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve)
      this.#schedule()
    })
  }

  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(this.#grant)
  }

  readonly #grant = (): void => {
    this.#isScheduled = false
    this.#waiting.shift()?.()
    if (this.#waiting.length > 0) this.#schedule()
  }
}

/** Configures the separate connections for `COPY … TO STDOUT`, so that no mail waits behind a reader. */
interface CopyOutOptions {
  readonly applicationName: string
  /** Session settings, which override the defaults. */
  readonly settings: Readonly<Record<string, string | number>>
  readonly statementTimeoutMs: number
  /** The number of idle connections that stay open. Callers limit concurrent reads. */
  readonly idleMax: number
}

const CONNECT_TIMEOUT_MS = 5_000
/** The size of a read from which `GcPressure` pays off, because its allocation costs a collection. */
const LONG_BYTES = 8 * 2 ** 20

export class CopyOutPool {
  readonly #url: string
  readonly #address: DatabaseAddress
  readonly #options: CopyOutOptions
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
   * Yields the output of a `COPY … TO STDOUT`, as `CopyOutStream.chunks` does. Ending the iteration or aborting
   * `signal` cancels the statement.
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
  // ends a killed broker's statement, whose snapshot would retain dead rows
  client_connection_check_interval: 1_000,
}

const PRESSURE_BYTES = 256 * 2 ** 20

/**
 * Makes garbage collection six times rarer during long reads, whose buffers are freed explicitly. Bun collects whenever
 * a quarter of the bytes that it counts are new. This large buffer counts but takes no memory, because nothing is
 * written to it.
 */
class GcPressure {
  #holders = 0
  #bytes: ArrayBuffer | null = null

  /** Returns a function that releases the pressure; call it once. */
  hold(): () => void {
    this.#holders += 1
    // A resizable buffer is newly mapped; any other could reuse memory and be overwritten with zeros.
    this.#bytes ??= new ArrayBuffer(PRESSURE_BYTES, { maxByteLength: PRESSURE_BYTES })
    return () => {
      this.#holders -= 1
      if (this.#holders === 0) this.#bytes = null
    }
  }
}
