/**
 * Encodes the fields of signed statements: big-endian integers and length-prefixed byte strings, so the encoding is
 * unambiguous.
 */
import { assert, hexByteAt } from '@sealpost/std'

const encoder = new TextEncoder()

export function concatBytes(parts: readonly Uint8Array[]): Uint8Array {
  let length = 0
  for (const part of parts) length += part.length
  const whole = new Uint8Array(length)
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}

/** Returns `lp(x)`: the length as u16, then x. */
export function lengthPrefixed(bytes: Uint8Array): Uint8Array {
  const { length } = bytes
  assert(isUnsigned(length, 0xffff), 'a u16 is out of range')
  const field = new Uint8Array(2 + length)
  field[0] = length >>> 8
  field[1] = length
  field.set(bytes, 2)
  return field
}

/** Returns a context for signatures: ASCII and a zero byte, so that none is a prefix of another. */
export function context(ascii: string): Uint8Array {
  return encoder.encode(`${ascii}\0`)
}

export function utf8(text: string): Uint8Array {
  return encoder.encode(text)
}

export function u16(value: number): Uint8Array {
  assert(isUnsigned(value, 0xffff), 'a u16 is out of range')
  return Uint8Array.of(value >>> 8, value)
}

export function u32(value: number): Uint8Array {
  const bytes = new Uint8Array(4)
  writeU32(bytes, 0, value)
  return bytes
}

export function u64(value: number): Uint8Array {
  const bytes = new Uint8Array(8)
  writeU64(bytes, 0, value)
  return bytes
}

export function writeU32(into: Uint8Array, at: number, value: number): void {
  assert(isUnsigned(value, 0xffffffff), 'a u32 is out of range')
  into[at] = value >>> 24
  into[at + 1] = value >>> 16
  into[at + 2] = value >>> 8
  into[at + 3] = value
}

/** Returns whether `bytes` contains this hex string at `at`. */
export function holdsHex(bytes: Uint8Array, at: number, hex: string): boolean {
  for (let i = 0; i < hex.length; i += 2) if (bytes[at + (i >>> 1)] !== hexByteAt(hex, i)) return false
  return true
}

export function writeU64(into: Uint8Array, at: number, value: number): void {
  assert(isUnsigned(value, Number.MAX_SAFE_INTEGER), 'a u64 is out of range')
  writeU32(into, at, Math.floor(value / 0x1_0000_0000))
  writeU32(into, at + 4, value >>> 0)
}

export function readU32(from: Uint8Array, at: number): number {
  return ((from[at]! << 24) | (from[at + 1]! << 16) | (from[at + 2]! << 8) | from[at + 3]!) >>> 0
}

/** Reads a u64. Rounds values beyond the safe integers, which callers refuse. */
export function readU64(from: Uint8Array, at: number): number {
  return readU32(from, at) * 0x1_0000_0000 + readU32(from, at + 4)
}

/** Reads fields in sequence. Past the end, reads zeros, and `isAtEnd` is false. */
export class FieldReader {
  readonly #bytes: Uint8Array
  #at = 0

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length
  }

  u16(): number {
    const [high = 0, low = 0] = this.take(2)
    return (high << 8) | low
  }

  u32(): number {
    return readU32(this.take(4), 0)
  }

  u64(): number {
    return readU64(this.take(8), 0)
  }

  /** Reads the bytes of an `lp(x)`. */
  prefixed(): Uint8Array {
    return this.take(this.u16())
  }

  take(length: number): Uint8Array {
    const part = this.#bytes.subarray(this.#at, this.#at + length)
    this.#at += length
    return part
  }
}

export function isUnsigned(value: number, max: number): boolean {
  return Number.isSafeInteger(value) && value >= 0 && value <= max
}
