/** Base64url without padding, by the platform's Base64. Strict: one value has one spelling. */

declare const btoa: (text: string) => string
declare const atob: (text: string) => string

/** What `String.fromCharCode` takes at once without filling the stack. */
const CHUNK = 0x2000

export function toBase64url(bytes: Uint8Array): string {
  let text = ''
  for (let at = 0; at < bytes.length; at += CHUNK) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK))
  return btoa(text).replace(/=+$/, '').replaceAll('+', '-').replaceAll('/', '_')
}

/** @throws SyntaxError when `text` is no spelling that `toBase64url` writes. */
export function fromBase64url(text: string): Uint8Array {
  const decoded = decode(text)
  const bytes = decoded === null ? null : Uint8Array.from(decoded, (char) => char.charCodeAt(0))
  if (!bytes || toBase64url(bytes) !== text) throw new SyntaxError('not base64url without padding')
  return bytes
}

function decode(text: string): string | null {
  try {
    return atob(text.replaceAll('-', '+').replaceAll('_', '/'))
  } catch {
    return null
  }
}
