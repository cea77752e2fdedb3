/** What a server says, told apart before its driver sees it. */

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
