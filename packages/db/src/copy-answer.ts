/**
 * What a `COPY … TO STDOUT` says, taken off a connection before its driver sees it: the messages that hold its rows, as the
 * server framed them (a byte 100, an int32 that counts itself, a row). The driver (`pg`) gets everything else. It costs a
 * third of what a stream of the driver's does, which cuts every message out, and reads 8 KB at a time.
 */
import type { Connection } from 'pg'
import { type PipeConnection, Run } from './pipe-driver.ts'
import { RowTap } from './row-tap.ts'
import type { Turnstile } from './turnstile.ts'

const COPY_DATA = 'd'
/** A smaller buffer may be part of one that others use. */
const FREED_BYTES_MIN = 64 * 1024
const nothing = () => undefined

function free({ buffer }: Buffer): void {
  if (buffer.byteLength >= FREED_BYTES_MIN) (buffer as ArrayBuffer).transfer(0)
}

type Source = PipeConnection & { query(text: string): void }

/** One statement on a connection; read it with `chunks`, once. */
export class CopyAnswer extends Run {
  readonly #statement: string
  readonly #turnstile: Turnstile
  readonly #tap = new RowTap(COPY_DATA, (bytes) => this.#came(bytes))
  readonly #unread: Buffer[] = []
  #source: Source | undefined
  #error: { readonly is: unknown } | undefined
  /** The server has no more to say of it. */
  #isOver = false
  #wake: () => void = nothing

  constructor(statement: string, turnstile: Turnstile) {
    super()
    this.#statement = statement
    this.#turnstile = turnstile
  }

  /**
   * The rows' messages, as large as what came at once, half a megabyte at most; they begin and end anywhere. Each is good
   * until the next is asked for: then its memory is freed, which the collector of garbage would do later and at a price.
   * Nothing is read from the connection that was not asked for. @throws what the driver does
   */
  async *chunks(): AsyncGenerator<Buffer, void, undefined> {
    for (;;) {
      for (let bytes = this.#unread.shift(); bytes; bytes = this.#unread.shift()) {
        yield bytes
        if (bytes.buffer !== this.#unread[0]?.buffer) free(bytes)
      }
      if (this.#isOver && this.#error) throw this.#error.is
      if (this.#isOver) return
      await this.#turnstile.pass()
      await this.#more()
    }
  }

  #more(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve
      if (this.#isOver || this.#unread.length > 0) resolve()
      else this.#source?.stream.resume()
    })
  }

  submit(driver: Connection): void {
    const source = driver as unknown as Source
    this.#source = source
    this.#tap.open(source.stream)
    source.query(this.#statement)
  }

  #came(bytes: Buffer): void {
    this.#unread.push(bytes)
    this.#source?.stream.pause()
    this.#wake()
  }

  protected failed(error: unknown): void {
    this.#error = { is: error }
    this.#over()
  }
  handleReadyForQuery(): void {
    this.#over()
  }
  #over(): void {
    this.#isOver = true
    this.#tap.close()
    this.#wake()
  }
}
