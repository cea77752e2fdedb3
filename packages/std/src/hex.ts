/** Hex, strict: lower case only, so that one value has one spelling. */

const DIGITS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'))
const NONE = 0xff
const NIBBLES = new Uint8Array(128).fill(NONE)
for (let nibble = 0; nibble < 16; nibble++) NIBBLES[nibble.toString(16).charCodeAt(0)] = nibble

const nibbleAt = (text: string, at: number): number => NIBBLES[text.charCodeAt(at)] ?? NONE

interface Codec {
  encode(bytes: Uint8Array): string
  /** Returns null when `text` is not lower-case hex of whole bytes. */
  decode(text: string): Uint8Array | null
}

/** Available in Bun, Deno, Node 25 and browsers of 2025: reads 400 bytes in 0.2 µs, where the table takes 1.8 µs. */
const NATIVE: Codec = {
  encode: (bytes) => bytes.toHex(),
  decode: (text) => {
    try {
      const bytes = Uint8Array.fromHex(text)
      return bytes.toHex() === text ? bytes : null // the platform accepts upper case
    } catch {
      return null
    }
  },
}

/** For older platforms, including Node 22. */
const BY_TABLE: Codec = {
  encode: (bytes) => {
    let text = ''
    for (const byte of bytes) text += DIGITS[byte]
    return text
  },
  decode: (text) => {
    const bytes = new Uint8Array(text.length >> 1)
    let seen = text.length & 1 ? NONE : 0
    for (let i = 0; i < bytes.length; i++) {
      const high = nibbleAt(text, i * 2)
      const low = nibbleAt(text, i * 2 + 1)
      seen |= high | low
      bytes[i] = (high << 4) | low
    }
    return seen > 15 ? null : bytes
  },
}

/** For tests: both codecs must behave the same. */
export const CODECS = { native: NATIVE, table: BY_TABLE }

const codec = 'fromHex' in Uint8Array ? NATIVE : BY_TABLE

export const toHex = (bytes: Uint8Array): string => codec.encode(bytes)

/** Uses the table: it allocates nothing, and is faster than a regular expression at the length of a key. */
export function isHex(text: unknown, byteLength: number): text is string {
  if (typeof text !== 'string' || text.length !== byteLength * 2) return false
  for (let at = 0; at < text.length; at++) if (nibbleAt(text, at) === NONE) return false
  return true
}

/** @throws SyntaxError when `text` is not lower-case hex of whole bytes. */
export function fromHex(text: string): Uint8Array {
  const bytes = codec.decode(text)
  if (!bytes) throw new SyntaxError('not lower-case hex')
  return bytes
}

/** Compares in a time that depends on the bytes, so don't use it for secrets. */
export function isSameBytes(a: Uint8Array, b: Uint8Array): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false
  return a.length === b.length
}
