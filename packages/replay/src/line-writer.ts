/**
 * Writes rows as lines of JSON into one buffer, digit by digit: building each line as a string took ten times as long,
 * most of it for allocation.
 */
import type { Micros } from '@sealpost/std'
import type { ReplayRow } from './copy-rows.ts'
import { formatTimestamp } from './pages.ts'

/** More than a line needs next to its base64, for braces, names and numbers. */
const FRAME_BYTES = 128

const ascii = (text: string): Uint8Array => Buffer.from(text, 'latin1')
const [SEQ, AT, KIND, VALUE, BODY, END] = ['{"seq":', ',"at":"', 'Z","kind":', ',"value":"', '","body":"', '"}\n'].map(ascii) as [Uint8Array, Uint8Array, Uint8Array, Uint8Array, Uint8Array, Uint8Array] // biome-ignore format: one thing
const [ZERO, COLON, POINT, PAD] = [0x30, 0x3a, 0x2e, 0x3d]

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

  /** Returns the bytes since the last call; valid until the next row is written. */
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

/** Formats times like `formatTimestamp`, without the `Z`; consecutive rows share a day. */
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

// These functions return the end offset.

function write(bytes: Uint8Array, out: Buffer, start: number): number {
  for (let i = 0; i < bytes.length; i++) out[start + i] = bytes[i]!
  return start + bytes.length
}

function writeDigits(value: number, count: number, out: Buffer, start: number): number {
  let left = value
  for (let at = start + count - 1; at >= start; at--) {
    const digit = left % 10 // a quotient near 2^53 would be rounded
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
