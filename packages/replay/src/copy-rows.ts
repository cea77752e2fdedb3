/**
 * Whole rows out of the bytes of a binary `COPY`, which come cut anywhere: a header of 19 bytes, then for each row the
 * number of its columns (int16) and before each column its length (int32, -1 for none), then -1 in place of a number.
 */
import { assert } from '@sealpost/std'
import type { Micros } from './space-ref.ts'

export interface Row {
  readonly seq: number
  readonly at: Micros
  /** 1 set, 2 deleted, 3 a message. */
  readonly kind: number
  /** The entry, or a message's record. A view: good until the next bytes are taken. */
  readonly value: Buffer
  readonly body: Buffer | null
}

const HEADER_BYTES = 19
/** Up to the value: the count of columns, then three of known lengths, then the length of the value. */
const FRONT_BYTES = 2 + (4 + 8) + (4 + 8) + (4 + 2) + 4
const COLUMNS = 5

export class CopyRows {
  #rest: Buffer = Buffer.alloc(0)
  #isPastHeader = false
  #isAtEnd = false

  /** The rows that are whole now. */
  take(bytes: Buffer): Row[] {
    let unread = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes])
    if (!this.#isPastHeader && unread.length >= HEADER_BYTES) {
      this.#isPastHeader = true
      unread = unread.subarray(HEADER_BYTES)
    }
    const rows: Row[] = []
    let offset = 0
    while (this.#isPastHeader && !this.#isAtEnd) {
      const end = this.#endOfRow(unread, offset)
      if (end === null) break
      rows.push(readRow(unread, offset))
      offset = end
    }
    this.#rest = Buffer.from(unread.subarray(offset)) // a copy, so that what is done is not held
    return rows
  }

  /** Whether the last row was the last. */
  get isAtEnd(): boolean {
    return this.#isAtEnd
  }

  #endOfRow(bytes: Buffer, start: number): number | null {
    if (bytes.length < start + 2) return null
    const columns = bytes.readInt16BE(start)
    this.#isAtEnd = columns === -1
    if (this.#isAtEnd || bytes.length < start + FRONT_BYTES) return null
    assert(columns === COLUMNS, 'every answer has the same columns')
    const bodyLengthAt = start + FRONT_BYTES + bytes.readInt32BE(start + FRONT_BYTES - 4)
    if (bytes.length < bodyLengthAt + 4) return null
    const end = bodyLengthAt + 4 + Math.max(0, bytes.readInt32BE(bodyLengthAt))
    return bytes.length < end ? null : end
  }
}

function readRow(bytes: Buffer, start: number): Row {
  const valueAt = start + FRONT_BYTES
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
