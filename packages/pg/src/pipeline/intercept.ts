/**
 * Takes one query's row messages off a connection before the driver (`pg`) parses them. The driver receives all other
 * messages.
 */
import type { Duplex } from 'node:stream'

/** The size of a message's header: a type byte, and an int32 length that includes itself. */
const HEADER_BYTES = 5

type Take = (bytes: Buffer) => void

/** Separates messages of one type from all others, even if chunks end inside one. */
export class MessageSplitter {
  readonly #type: number
  #left = 0
  #isOfType = false
  #cutHeader: Buffer = Buffer.alloc(0)

  /** @param type - `d` for rows of a `COPY`, `D` for rows of any other statement */
  constructor(type: string) {
    this.#type = type.charCodeAt(0)
  }

  /** Passes on views in stream order, which may begin and end inside a message. */
  take(chunk: Buffer, { rows, others }: { rows: Take; others: Take }): void {
    const bytes = this.#cutHeader.length === 0 ? chunk : Buffer.concat([this.#cutHeader, chunk])
    const give = (start: number, end: number) => {
      if (end > start) (this.#isOfType ? rows : others)(bytes.subarray(start, end))
    }
    let start = 0
    let at = this.#skip(bytes, 0)
    while (bytes.length - at >= HEADER_BYTES) {
      const isOfType = bytes[at] === this.#type
      if (isOfType !== this.#isOfType) {
        give(start, at)
        start = at
        this.#isOfType = isOfType
      }
      this.#left = 1 + bytes.readInt32BE(at + 1)
      at = this.#skip(bytes, at)
    }
    give(start, at)
    this.#cutHeader = Buffer.from(bytes.subarray(at))
  }

  /** The beginning of a message whose header is incomplete. */
  get cutHeader(): Buffer {
    return this.#cutHeader
  }

  /** Returns the end of the current message or of the chunk, whichever is first. */
  #skip(bytes: Buffer, at: number): number {
    const skipped = Math.min(this.#left, bytes.length - at)
    this.#left -= skipped
    return at + skipped
  }
}

/** Intercepts row messages from `attach` to the end of the chunk in which `detach` is called. */
export class RowInterceptor {
  readonly #messages: MessageSplitter
  readonly #rows: Take
  #stream: Duplex | undefined
  #driver: Take = () => undefined
  #isDetached = false

  /** @param rows - receives the messages of this type, as views that may begin and end inside a message */
  constructor(type: string, rows: Take) {
    this.#messages = new MessageSplitter(type)
    this.#rows = rows
  }

  attach(stream: Duplex): void {
    const [driver] = stream.listeners('data') as Take[]
    this.#stream = stream
    this.#driver = driver!
    stream.off('data', driver!)
    stream.on('data', this.#take)
  }

  detach(): void {
    this.#isDetached = true
  }

  readonly #take = (chunk: Buffer): void => {
    const others = (bytes: Buffer) => this.#driver(Buffer.from(bytes)) // copies, because the driver keeps incomplete messages
    this.#messages.take(chunk, { rows: this.#rows, others })
    if (this.#isDetached) this.#restore(this.#stream!)
  }

  #restore(stream: Duplex): void {
    stream.off('data', this.#take)
    stream.on('data', this.#driver)
    stream.resume()
    this.#driver(this.#messages.cutHeader)
  }
}
