import { copyBytes, toHex, writeHex } from '@sealpost/std'

/**
 * Reads and writes the bytes of one binary frame. Integers are big-endian. A reader never copies: blobs are views of
 * its input.
 */

/** Thrown only inside the codec, which turns it into a value. Its message never quotes the input. */
export class Malformed extends Error {}

export class Reader {
  readonly bytes: Uint8Array
  #at = 0

  constructor(bytes: Uint8Array) {
    this.bytes = bytes
  }

  u8(): number {
    return this.bytes[this.take(1)]!
  }
  u16(): number {
    const { bytes } = this
    const start = this.take(2)
    return (bytes[start]! << 8) | bytes[start + 1]!
  }
  u32(): number {
    return this.#u32At(this.take(4))
  }
  u53(): number {
    const start = this.take(8)
    const high = this.#u32At(start)
    if (high > 0x1fffff) throw new Malformed('integer over 2^53 - 1')
    return high * 0x100000000 + this.#u32At(start + 4)
  }
  blob(length: number): Uint8Array {
    const start = this.take(length)
    return this.bytes.subarray(start, start + length)
  }
  /** Advances by `length` bytes. Returns the previous offset. */
  take(length: number): number {
    const start = this.#at
    if (length > this.bytes.length - start) throw new Malformed('cut short')
    this.#at = start + length
    return start
  }
  get isAtEnd(): boolean {
    return this.#at === this.bytes.length
  }
  end(): void {
    if (!this.isAtEnd) throw new Malformed('trailing bytes')
  }

  #u32At(start: number): number {
    const { bytes } = this
    return ((bytes[start]! << 24) | (bytes[start + 1]! << 16) | (bytes[start + 2]! << 8) | bytes[start + 3]!) >>> 0
  }
}

/** Writes the bytes of a frame. Callers check the values. */
export class Writer {
  private bytes = new Uint8Array(64 * 1024)
  #view = new DataView(this.bytes.buffer)
  #at = 0

  u8(value: number): void {
    const start = this.#room(1) // first, because it may replace the view
    this.#view.setUint8(start, value)
  }
  u16(value: number): void {
    const start = this.#room(2) // first, because it may replace the view
    this.#view.setUint16(start, value)
  }
  u32(value: number): void {
    const start = this.#room(4) // first, because it may replace the view
    this.#view.setUint32(start, value)
  }
  u53(value: number): void {
    const start = this.#room(8)
    this.#view.setUint32(start, Math.floor(value / 0x100000000))
    this.#view.setUint32(start + 4, value >>> 0)
  }
  set(bytes: Uint8Array): void {
    const start = this.#room(bytes.length)
    this.bytes.set(bytes, start)
  }
  /** Writes lower-case hex as bytes. Returns false if there is any other character. */
  hex(text: string): boolean {
    const start = this.#room(text.length >>> 1)
    return writeHex(this.bytes, start, text)
  }

  /** Returns the bytes written since the last call. They are valid until the next write. */
  finish(): Uint8Array {
    const finished = this.bytes.subarray(0, this.#at)
    this.#at = 0
    return finished
  }
  abandon(): void {
    this.#at = 0
  }

  #room(length: number): number {
    const start = this.#at
    this.#at = start + length
    if (this.#at > this.bytes.length) this.#grow()
    return start
  }
  #grow(): void {
    const grown = new Uint8Array(Math.max(this.#at, this.bytes.length * 2))
    grown.set(this.bytes)
    this.bytes = grown
    this.#view = new DataView(grown.buffer)
  }
}

/**
 * The number of slots in a cache of recent keys in hex. Comparing a key with a cached one costs 0.03 µs; building and
 * hashing its string costs 0.10 µs.
 */
const PLACES = 1024
export const KEY_BYTES = 32

interface Known {
  readonly bytes: Uint8Array
  readonly name: string
}

const known: (Known | undefined)[] = new Array(PLACES).fill(undefined)

export function keyName(from: Uint8Array, at: number): string {
  const place = ((from[at + 30]! << 8) | from[at + 31]!) % PLACES
  const there = known[place]
  if (there && holds(from, at, there.bytes)) return there.name
  const bytes = copyBytes(from, at, KEY_BYTES)
  const name = toHex(bytes)
  known[place] = { bytes, name }
  return name
}

/** In this file, so that the path of a message stays in it. */
function holds(from: Uint8Array, at: number, bytes: Uint8Array): boolean {
  for (let i = 0; i < KEY_BYTES; i++) if (from[at + i] !== bytes[i]) return false
  return true
}
