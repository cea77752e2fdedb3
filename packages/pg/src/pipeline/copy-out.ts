/**
 * Reads a `COPY … TO STDOUT` by taking its row messages off the connection before the driver (`pg`) parses them. This
 * costs a third of the driver's own stream, which cuts out every message and reads 8 KB at a time.
 */
import type { Connection } from 'pg'
import { internalsOf, type PgConnection, PgQuery } from './driver.ts'
import { RowInterceptor } from './intercept.ts'

const COPY_DATA = 'd'
/** A smaller buffer may be part of one that others use. */
const FREED_BYTES_MIN = 64 * 1024
const nothing = () => undefined

function free({ buffer }: Buffer): void {
  if (buffer.byteLength >= FREED_BYTES_MIN) (buffer as ArrayBuffer).transfer(0)
}

/** One statement on one connection; read `chunks` once. */
export class CopyOutStream extends PgQuery {
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
   * megabyte, which may begin and end inside a message. A chunk is valid until the next one is requested; then its
   * memory is freed at once, because garbage collection would cost more. The socket is read only while a chunk is
   * awaited.
   * @throws what the driver throws
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

/** Grants one waiting task per turn of the event loop, so that long reads leave every turn to all other work. */
export class EventLoopYield {
  readonly #waiting: (() => void)[] = []
  #isScheduled = false

  /** Resolves in the order of the calls. */
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
