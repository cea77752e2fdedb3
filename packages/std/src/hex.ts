/** Hex, strict: lower case only, so that one value has one spelling. By a table: faster here than a pattern or the platform. */

const DIGITS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'))
const NONE = 0xff
const NIBBLES = new Uint8Array(128).fill(NONE)
for (let nibble = 0; nibble < 16; nibble++) NIBBLES[nibble.toString(16).charCodeAt(0)] = nibble

const nibbleAt = (text: string, at: number): number => NIBBLES[text.charCodeAt(at)] ?? NONE

export function toHex(bytes: Uint8Array): string {
  const own = (bytes as { toHex?(): string }).toHex
  if (own) return own.call(bytes)
  let text = ''
  for (const byte of bytes) text += DIGITS[byte]
  return text
}

export function isHex(text: unknown, byteLength: number): text is string {
  if (typeof text !== 'string' || text.length !== byteLength * 2) return false
  for (let at = 0; at < text.length; at++) if (nibbleAt(text, at) === NONE) return false
  return true
}

/** @throws SyntaxError when `text` is not lower-case hex of whole bytes. */
export function fromHex(text: string): Uint8Array {
  const bytes = new Uint8Array(text.length >> 1)
  let seen = text.length & 1 ? NONE : 0
  for (let i = 0; i < bytes.length; i++) {
    const high = nibbleAt(text, i * 2)
    const low = nibbleAt(text, i * 2 + 1)
    seen |= high | low
    bytes[i] = (high << 4) | low
  }
  if (seen > 15) throw new SyntaxError('not lower-case hex')
  return bytes
}
