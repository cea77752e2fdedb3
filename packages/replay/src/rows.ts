/**
 * Reads the rows of a response from a binary `COPY`, and writes them as lines of JSON.
 *
 * A message of the `COPY` contains the byte 100, an int32 length that includes itself, and a row. A row contains the
 * number of its columns (int16), then for each column its length (int32, -1 for null) and its bytes. A header of 19
 * bytes precedes the first row; a row with -1 columns ends the stream.
 */
import { assert, type Micros } from '@sealpost/std'
import { formatTimestamp } from './sql.ts'

export interface ReplayRow {
  readonly seq: number
  readonly at: Micros
  /** 1 if an entry was set, 2 if an entry was deleted, 3 for a message. */
  readonly kind: number
  readonly value: Buffer
  readonly body: Buffer | null
}

const FRONT_BYTES = 5
const HEADER_BYTES = 19
/**
 * The offset of the value, which follows the number of columns, three columns of known lengths, and the value's length.
 */
const VALUE_AT = 2 + (4 + 8) + (4 + 8) + (4 + 2) + 4
const COLUMNS = 5
const NONE = Buffer.alloc(0)

/** Reads complete rows from messages that are split at any byte. */
export class CopyRowReader {
  #cut: Buffer = NONE
  #isPastHeader = false
  #isAtEnd = false

  /** Calls `visit` with each complete row, whose value and body are views. */
  take(bytes: Buffer, visit: (row: ReplayRow) => void): void {
    let at = this.#finishCut(bytes, visit)
    while (bytes.length - at >= FRONT_BYTES) {
      const end = at + 1 + bytes.readInt32BE(at + 1)
      if (end > bytes.length) break
      this.#message(bytes, at + FRONT_BYTES, end, visit)
      at = end
    }
    // copies, so that the processed bytes can be freed
    if (at < bytes.length) this.#cut = Buffer.concat([this.#cut, bytes.subarray(at)])
  }

  /** Completes the incomplete message, if possible. @returns the offset of the next message */
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

  /** Whether the end of the stream was read. */
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

/** Returns the row in a `COPY` message, which may begin with the header; null if there is none. */
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

/** Removes the header from the first message. */
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

/** The maximum size of a line without its base64: braces, names, numbers. */
const FRAME_BYTES = 128

const ascii = (text: string): Uint8Array => Buffer.from(text, 'latin1')
const [SEQ, AT, KIND, VALUE, BODY, END] = ['{"seq":', ',"at":"', 'Z","kind":', ',"value":"', '","body":"', '"}\n'].map(ascii) as [Uint8Array, Uint8Array, Uint8Array, Uint8Array, Uint8Array, Uint8Array] // biome-ignore format: one thing
const [ZERO, COLON, POINT, PAD] = [0x30, 0x3a, 0x2e, 0x3d]

/**
 * Writes rows as lines of JSON into one buffer. Building strings took ten times as long, mostly because of allocation.
 */
export class JsonLineWriter {
  #out: Buffer
  #at = 0
  readonly #day = new DayText()

  constructor(bytes: number) {
    this.#out = Buffer.allocUnsafeSlow(bytes)
  }

  row({ seq, at: moment, kind, value, body }: ReplayRow): void {
    this.#makeRoom(FRAME_BYTES + base64Bytes(value) + (body ? base64Bytes(body) : 0))
    const out = this.#out
    let at = write(SEQ, out, this.#at)
    at = writeDigits(seq, digitsOf(seq), out, at)
    at = write(AT, out, at)
    at = this.#day.write(moment, out, at)
    at = write(KIND, out, at)
    at = writeDigits(kind, 1, out, at)
    at = write(VALUE, out, at)
    at = writeBase64(value, out, at)
    if (body !== null) at = writeBase64(body, out, write(BODY, out, at))
    this.#at = write(END, out, at)
  }

  /** Returns the bytes written since the last call. They are valid until the next row is written. */
  take(): Buffer {
    const written = this.#out.subarray(0, this.#at)
    this.#at = 0
    return written
  }

  #makeRoom(bytes: number): void {
    if (this.#at + bytes <= this.#out.length) return
    const larger = Buffer.allocUnsafeSlow(2 * (this.#at + bytes))
    larger.set(this.#out.subarray(0, this.#at))
    this.#out = larger
  }
}

const DAY: Micros = 86_400e6

/** Formats times like `formatTimestamp` without the `Z`. Caches the day, which consecutive rows share. */
class DayText {
  #day = Number.NaN
  #text = ascii('')

  write(moment: Micros, out: Buffer, start: number): number {
    const ofDay = ((moment % DAY) + DAY) % DAY
    if (moment - ofDay !== this.#day) {
      this.#day = moment - ofDay
      this.#text = ascii(formatTimestamp(this.#day).slice(0, 11))
    }
    const micros = ofDay % 1e6
    const seconds = (ofDay - micros) / 1e6
    let at = write(this.#text, out, start)
    at = writeDigits(Math.floor(seconds / 3600), 2, out, at)
    out[at++] = COLON
    at = writeDigits(Math.floor(seconds / 60) % 60, 2, out, at)
    out[at++] = COLON
    at = writeDigits(seconds % 60, 2, out, at)
    out[at++] = POINT
    return writeDigits(micros, 6, out, at)
  }
}

// Writes bytes. Returns the end offset.

function write(bytes: Uint8Array, out: Buffer, start: number): number {
  for (let i = 0; i < bytes.length; i++) out[start + i] = bytes[i]!
  return start + bytes.length
}

function writeDigits(value: number, count: number, out: Buffer, start: number): number {
  let left = value
  for (let at = start + count - 1; at >= start; at--) {
    const digit = left % 10 // the quotient may be rounded near 2^53
    out[at] = ZERO + digit
    left = (left - digit) / 10
  }
  return start + count
}

function digitsOf(value: number): number {
  let count = 1
  for (let next = 10; next <= value; next *= 10) count += 1
  return count
}

const base64Bytes = (bytes: Buffer): number => 4 * Math.ceil(bytes.length / 3)

const ALPHABET = ascii('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/')
const [FIRST, SECOND] = [new Uint8Array(4096), new Uint8Array(4096)]
for (let bits = 0; bits < 4096; bits++) {
  FIRST[bits] = ALPHABET[bits >> 6]!
  SECOND[bits] = ALPHABET[bits & 63]!
}

function writeBase64(bytes: Buffer, out: Buffer, start: number): number {
  const whole = bytes.length - (bytes.length % 3)
  let at = start
  for (let i = 0; i < whole; i += 3) {
    const bits = (bytes[i]! << 16) | (bytes[i + 1]! << 8) | bytes[i + 2]!
    out[at] = FIRST[bits >> 12]!
    out[at + 1] = SECOND[bits >> 12]!
    out[at + 2] = FIRST[bits & 4095]!
    out[at + 3] = SECOND[bits & 4095]!
    at += 4
  }
  if (whole === bytes.length) return at
  const hasTwo = bytes.length - whole === 2
  const bits = (bytes[whole]! << 16) | (hasTwo ? bytes[whole + 1]! << 8 : 0)
  out[at] = FIRST[bits >> 12]!
  out[at + 1] = SECOND[bits >> 12]!
  out[at + 2] = hasTwo ? FIRST[bits & 4095]! : PAD
  out[at + 3] = PAD
  return at + 4
}
