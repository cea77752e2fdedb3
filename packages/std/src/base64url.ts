/** Base64url without padding, by the platform's codec. Strict: one value has one spelling. */

declare const btoa: (text: string) => string
declare const atob: (text: string) => string

interface Codec {
  encode(bytes: Uint8Array): string
  /** @throws Error on text that is not Base64 */
  decode(text: string): Uint8Array
}

const WRITE = { alphabet: 'base64url', omitPadding: true } as const
const READ = { alphabet: 'base64url' } as const
/** Arguments for one call of `String.fromCharCode`; more could overflow the stack. */
const CHUNK = 0x2000

/** Available in Bun, Deno, Node 25 and browsers of 2025: reads 400 bytes in 0.5 µs, where `atob` takes 18 µs. */
const NATIVE: Codec = {
  encode: (bytes) => bytes.toBase64(WRITE),
  decode: (text) => Uint8Array.fromBase64(text, READ),
}

/** For older platforms, including Node 22. */
const BY_ATOB: Codec = {
  encode: (bytes) => {
    let text = ''
    for (let at = 0; at < bytes.length; at += CHUNK) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK))
    return btoa(text).replace(/=+$/, '').replaceAll('+', '-').replaceAll('/', '_')
  },
  decode: (text) => Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (char) => char.charCodeAt(0)),
}

/** For tests: both codecs must behave the same. */
export const CODECS = { native: NATIVE, atob: BY_ATOB }

const codec = 'fromBase64' in Uint8Array ? NATIVE : BY_ATOB

export const toBase64url = (bytes: Uint8Array): string => codec.encode(bytes)

/** @throws SyntaxError when `text` is not what `toBase64url` returns for some bytes. */
export const fromBase64url = (text: string): Uint8Array => decodeStrictly(text, codec)

/** Platforms accept padding, white space and stray bits; encoding the result again detects all of them. */
export function decodeStrictly(text: string, { encode, decode }: Codec): Uint8Array {
  let bytes: Uint8Array | null = null
  try {
    bytes = decode(text)
  } catch {
    // Refused below, like text with a second spelling.
  }
  if (!bytes || encode(bytes) !== text) throw new SyntaxError('not base64url without padding')
  return bytes
}
