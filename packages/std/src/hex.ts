/** Hex, strict: lower case only, so that one value has one spelling. Uses the engine's own routines where it has them. */
interface NativeHex {
  toHex?(): string
}
const native = Uint8Array as unknown as { fromHex?: (text: string) => Uint8Array }

const DIGITS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'))

export function toHex(bytes: Uint8Array): string {
  const own = (bytes as NativeHex).toHex
  if (own) return own.call(bytes)
  let text = ''
  for (const byte of bytes) text += DIGITS[byte]
  return text
}

export function isHex(text: unknown, byteLength: number): text is string {
  return typeof text === 'string' && text.length === byteLength * 2 && /^[0-9a-f]*$/.test(text)
}

/** @throws SyntaxError when `text` is not lower-case hex of whole bytes. */
export function fromHex(text: string): Uint8Array {
  if (!isHex(text, text.length / 2)) throw new SyntaxError('not lower-case hex')
  if (native.fromHex) return native.fromHex(text)
  const bytes = new Uint8Array(text.length / 2)
  for (let i = 0; i < bytes.length; i++) bytes[i] = Number.parseInt(text.slice(i * 2, i * 2 + 2), 16)
  return bytes
}
