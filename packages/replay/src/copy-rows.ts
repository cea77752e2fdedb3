/**
 * Whole rows out of the messages of a binary `COPY`, which come cut anywhere. A message is the byte 100, an int32 that counts
 * itself and what follows, and a row: the number of its columns (int16), and before each its length (int32, -1 for none).
 * Ahead of the first stands a header of 19 bytes; a row of -1 columns ends it all.
 */
import { assert, type Micros } from '@sealpost/std'

export interface ReplayRow {
  readonly seq: number
  readonly at: Micros
  /** 1 set, 2 deleted, 3 a message. */
  readonly kind: number
  /** The entry, or a message's record. */
  readonly value: Buffer
  readonly body: Buffer | null
}

const FRONT_BYTES = 5
const HEADER_BYTES = 19
/** Up to the value: the count of columns, then three of known lengths, then the length of the value. */
const VALUE_AT = 2 + (4 + 8) + (4 + 8) + (4 + 2) + 4
const COLUMNS = 5
const NONE = Buffer.alloc(0)

export class CopyRowReader {
  /** A message that is not whole. */
  #cut: Buffer = NONE
  #isPastHeader = false
  #isAtEnd = false

  /** Calls with each row that is whole now; its value and body are views. */
  take(bytes: Buffer, visit: (row: ReplayRow) => void): void {
    let at = this.#finishCut(bytes, visit)
    while (bytes.length - at >= FRONT_BYTES) {
      const end = at + 1 + bytes.readInt32BE(at + 1)
      if (end > bytes.length) break
      this.#message(bytes, at + FRONT_BYTES, end, visit)
      at = end
    }
    // A copy, so that what is done is not held.
    if (at < bytes.length) this.#cut = Buffer.concat([this.#cut, bytes.subarray(at)])
  }

  /** Takes of the bytes what the message that was cut still lacks, and no more. @returns where the next one begins */
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

  /** Whether the last row was the last. */
  get isAtEnd(): boolean {
    return this.#isAtEnd
  }

  #message(bytes: Buffer, start: number, end: number, visit: (row: ReplayRow) => void): void {
    const at = this.#isPastHeader ? start : start + HEADER_BYTES
    this.#isPastHeader = true
    if (at === end) return // the header came by itself
    const columns = bytes.readInt16BE(at)
    this.#isAtEnd = columns === -1
    if (this.#isAtEnd) return
    assert(columns === COLUMNS, 'every answer has the same columns')
    visit(readRow(bytes, at))
  }
}

/** The row in what one message of a `COPY` holds, behind the header where that stands before it. @returns null: none is in it */
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

/** Below 2^53, without the price of a bigint. */
const readWhole = (bytes: Buffer, at: number): number => bytes.readInt32BE(at) * 2 ** 32 + bytes.readUInt32BE(at + 4)

/** Takes the header out of the first message, so that what is handed on is messages with a row each and nothing else. */
export class HeaderStrip {
  #begun: Buffer | null = NONE

  take(bytes: Buffer): Buffer {
    if (this.#begun === null) return bytes
    const begun = Buffer.concat([this.#begun, bytes])
    const rowAt = FRONT_BYTES + HEADER_BYTES
    this.#begun = begun.length < rowAt ? begun : null
    if (this.#begun !== null) return NONE
    const messageBytes = begun.readInt32BE(1) - HEADER_BYTES
    if (messageBytes === FRONT_BYTES - 1) return begun.subarray(rowAt) // the header came by itself
    begun.copyWithin(HEADER_BYTES, 0, 1)
    begun.writeInt32BE(messageBytes, HEADER_BYTES + 1)
    return begun.subarray(HEADER_BYTES)
  }
}
