/** The rows of one run, taken off a connection before its driver (`pg`) sees them; the driver gets everything else. */
import type { Duplex } from 'node:stream'

/** A message is a byte for its kind, an int32 for its length without that byte, and the rest. */
const FRONT_BYTES = 5

/** Parts the messages of one kind, those that hold rows, from all others, whatever the bytes were cut into. */
export class MessagesOf {
  readonly #kind: number
  #left = 0
  #isOfKind = false
  #cutFront: Buffer = Buffer.alloc(0)

  /** Of the server's, by their letter: a `d` holds a row of a copy, a `D` one of any other statement. */
  constructor(kind: string) {
    this.#kind = kind.charCodeAt(0)
  }

  /** Both are given views, in the order of their bytes; those of rows begin and end anywhere. */
  take(chunk: Buffer, { rows, others }: { rows: (bytes: Buffer) => void; others: (bytes: Buffer) => void }): void {
    const bytes = this.#cutFront.length === 0 ? chunk : Buffer.concat([this.#cutFront, chunk])
    const give = (start: number, end: number) => {
      if (end > start) (this.#isOfKind ? rows : others)(bytes.subarray(start, end))
    }
    let start = 0
    let at = this.#rest(bytes, 0)
    while (bytes.length - at >= FRONT_BYTES) {
      const isOfKind = bytes[at] === this.#kind
      if (isOfKind !== this.#isOfKind) {
        give(start, at)
        start = at
        this.#isOfKind = isOfKind
      }
      this.#left = 1 + bytes.readInt32BE(at + 1)
      at = this.#rest(bytes, at)
    }
    give(start, at)
    this.#cutFront = Buffer.from(bytes.subarray(at))
  }

  /** Of a message's first bytes, too few to tell what it is. */
  get cutOff(): Buffer {
    return this.#cutFront
  }

  /** Where the message that is under way ends, or the bytes do. */
  #rest(bytes: Buffer, at: number): number {
    const taken = Math.min(this.#left, bytes.length - at)
    this.#left -= taken
    return at + taken
  }
}

type Take = (bytes: Buffer) => void

/** From `open` to the end of the chunk in which `close` was called. */
export class RowTap {
  readonly #messages: MessagesOf
  readonly #rows: Take
  #stream: Duplex | undefined
  #driverTakes: Take = () => undefined
  #isClosed = false

  /** `rows` is given the messages of this kind, as views that begin and end anywhere. */
  constructor(kind: string, rows: Take) {
    this.#messages = new MessagesOf(kind)
    this.#rows = rows
  }

  open(stream: Duplex): void {
    const [takes] = stream.listeners('data') as Take[]
    this.#stream = stream
    this.#driverTakes = takes!
    stream.off('data', takes!)
    stream.on('data', this.#take)
  }

  close(): void {
    this.#isClosed = true
  }

  readonly #take = (chunk: Buffer): void => {
    const others = (bytes: Buffer) => this.#driverTakes(Buffer.from(bytes)) // which holds what is not whole
    this.#messages.take(chunk, { rows: this.#rows, others })
    if (this.#isClosed) this.#giveBack(this.#stream!)
  }

  /** The connection is the driver's again, with what came of its next messages. */
  #giveBack(stream: Duplex): void {
    stream.off('data', this.#take)
    stream.on('data', this.#driverTakes)
    stream.resume()
    this.#driverTakes(this.#messages.cutOff)
  }
}
