/**
 * Reads complete rows from the messages of a binary `COPY`, which arrive cut at any byte. A message is the byte 100, an
 * int32 that counts itself and the rest, and a row: the number of its columns (int16), then for each its length (int32,
 * -1 for none) and its bytes. A header of 19 bytes precedes the first row; a row of -1 columns ends the stream.
 */
import { assert, type Micros } from '@sealpost/std'

export interface ReplayRow {
  readonly seq: number
  readonly at: Micros
  /** 1 set, 2 deleted, 3 a message. */
  readonly kind: number
  readonly value: Buffer
  readonly body: Buffer | null
}

const FRONT_BYTES = 5
const HEADER_BYTES = 19
/** The offset of the value: the number of columns, three columns of known lengths, and the length of the value. */
const VALUE_AT = 2 + (4 + 8) + (4 + 8) + (4 + 2) + 4
const COLUMNS = 5
const NONE = Buffer.alloc(0)

export class CopyRowReader {
  #cut: Buffer = NONE
  #isPastHeader = false
  #isAtEnd = false

  /** Calls `visit` with each complete row; its value and body are views. */
  take(bytes: Buffer, visit: (row: ReplayRow) => void): void {
    let at = this.#finishCut(bytes, visit)
    while (bytes.length - at >= FRONT_BYTES) {
      const end = at + 1 + bytes.readInt32BE(at + 1)
      if (end > bytes.length) break
      this.#message(bytes, at + FRONT_BYTES, end, visit)
      at = end
    }
    // A copy, so that processed bytes are not retained.
    if (at < bytes.length) this.#cut = Buffer.concat([this.#cut, bytes.subarray(at)])
  }

  /** Takes only the bytes that the cut message lacks. @returns the offset of the next message */
  #finishCut(bytes: Buffer, visit: (row: ReplayRow) => void): number {
    if (this.#cut.length === 0) return 0
    let at = 0
    if (this.#cut.length < FRONT_BYTES) {
      at = Math.min(FRONT_BYTES - this.#cut.length, bytes.length)
      this.#cut = Buffer.concat([this.#cut, bytes.subarray(0, at)])
      if (this.#cut.length < FRONT_BYTES) return at
    }
    const lacking = 1 + this.#cut.readInt32BE(1) - this.#cut.length
    const message = Buffer.concat([this.#cut, bytes.subarray(at, at + lacking)])
    if (bytes.length - at < lacking) {
      this.#cut = message
      return bytes.length
    }
    this.#cut = NONE
    this.#message(message, FRONT_BYTES, message.length, visit)
    return at + lacking
  }

  /** Whether the last row ended the stream. */
  get isAtEnd(): boolean {
    return this.#isAtEnd
  }

  #message(bytes: Buffer, start: number, end: number, visit: (row: ReplayRow) => void): void {
    const at = this.#isPastHeader ? start : start + HEADER_BYTES
    this.#isPastHeader = true
    if (at === end) return
    const columns = bytes.readInt16BE(at)
    this.#isAtEnd = columns === -1
    if (this.#isAtEnd) return
    assert(columns === COLUMNS, 'every answer has the same columns')
    visit(readRow(bytes, at))
  }
}

/** Returns the row in the content of one `COPY` message, after the header if there is one, or null without a row. */
export function readCopyRow(message: Buffer): ReplayRow | null {
  const first = message.readInt16BE(0)
  const start = first === COLUMNS || first === -1 ? 0 : HEADER_BYTES
  if (message.length === start || message.readInt16BE(start) === -1) return null
  return readRow(message, start)
}

function readRow(bytes: Buffer, start: number): ReplayRow {
  const valueAt = start + VALUE_AT
  const bodyLengthAt = valueAt + bytes.readInt32BE(valueAt - 4)
  const bodyBytes = bytes.readInt32BE(bodyLengthAt)
  return {
    seq: readWhole(bytes, start + 6),
    at: readWhole(bytes, start + 18),
    kind: bytes.readInt16BE(start + 30),
    value: bytes.subarray(valueAt, bodyLengthAt),
    body: bodyBytes < 0 ? null : bytes.subarray(bodyLengthAt + 4, bodyLengthAt + 4 + bodyBytes),
  }
}

const readWhole = (bytes: Buffer, at: number): number => bytes.readInt32BE(at) * 2 ** 32 + bytes.readUInt32BE(at + 4)

/** Removes the header from the first message, so that each forwarded message is a row. */
export class HeaderStrip {
  #begun: Buffer | null = NONE

  take(bytes: Buffer): Buffer {
    if (this.#begun === null) return bytes
    const begun = Buffer.concat([this.#begun, bytes])
    const rowAt = FRONT_BYTES + HEADER_BYTES
    this.#begun = begun.length < rowAt ? begun : null
    if (this.#begun !== null) return NONE
    const messageBytes = begun.readInt32BE(1) - HEADER_BYTES
    if (messageBytes === FRONT_BYTES - 1) return begun.subarray(rowAt)
    begun.copyWithin(HEADER_BYTES, 0, 1)
    begun.writeInt32BE(messageBytes, HEADER_BYTES + 1)
    return begun.subarray(HEADER_BYTES)
  }
}
