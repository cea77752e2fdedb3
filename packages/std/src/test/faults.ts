/** Creates faults for fuzzers, of the kinds that networks and attackers cause in bytes, text and JSON. */
import type { Random } from '../ids.ts'

/** The length of long inputs, which are rare because each costs as much as a hundred others. */
const LONG = 256 * 1024

export const pick = <T>(random: Random, items: readonly T[]): T => items[random.below(items.length)]!

export function bytesOf(random: Random, length: number): Uint8Array {
  const bytes = new Uint8Array(length)
  for (let i = 0; i < length; i++) bytes[i] = random.below(256)
  return bytes
}

/**
 * Returns bytes with a flipped bit, a cut, an addition, a false length, a splice or another first byte, or entirely
 * different ones.
 */
export function faultyBytes(random: Random, good: Uint8Array, other: Uint8Array): Uint8Array {
  const bytes = good.slice()
  const at = random.below(bytes.length)
  switch (random.below(7)) {
    case 0:
      bytes[at]! ^= 1 << random.below(8)
      return bytes
    case 1:
      return bytes.subarray(0, at)
    case 2:
      return join(bytes, bytesOf(random, 1 + random.below(8)))
    case 3:
      return withLength(random, bytes, at)
    case 4:
      return join(bytes.subarray(0, at), other.subarray(at))
    case 5:
      bytes[0] = random.below(256)
      return bytes
    default:
      return random.chance(0.02) ? join(bytes, new Uint8Array(LONG)) : bytesOf(random, random.below(300))
  }
}

const LENGTHS = [[0, 0], [0, 1], [3, 0xe8], [3, 0xe9], [0xff, 0xff]] // biome-ignore format: a list

function withLength(random: Random, bytes: Uint8Array, at: number): Uint8Array {
  if (bytes.length >= 2) bytes.set(pick(random, LENGTHS), Math.min(at, bytes.length - 2))
  return bytes
}

function join(a: Uint8Array, b: Uint8Array): Uint8Array {
  const both = new Uint8Array(a.length + b.length)
  both.set(a)
  both.set(b, a.length)
  return both
}

const STRANGE_VALUES = [
  'null', 'true', '[]', '{}', '""', '"5"', '-0', '-1', '5.5', '1e999', '1e3', '65536', '4294967296', '9007199254740992',
  '"\\u0000"', '"\\ud800"', '"\\ud83d\\ude00"', '"é"', '"AB"', '"A A"', '"AA=="', '"AA+/"', '"ABCDEF0123456789"', '[[[[[[[[]]]]]]]]',
  '{"__proto__":{"admin":true}}', '{"constructor":{"prototype":{"admin":true}}}', '[null]', '[{}]',
] // biome-ignore format: a table
const STRANGE_KEYS = ['__proto__', 'constructor', 'toString', 'type', 'ref', 'items', '', '\\u0000', 'id', 'ids']
const STRANGE_LETTERS = ['=', ' ', 'A', 'z', '-', '\\n', '😀', '\\u0041']

/** Returns JSON in which a random value is replaced, removed, renamed or duplicated. */
export function faultyJson(random: Random, text: string): string {
  const places = [...text.matchAll(/"[^"]*"\s*:|"[^"]*"|-?\d+|true|false|[[{]/g)]
  if (places.length === 0) return text
  const { 0: found, index } = pick(random, places)
  const [before, after] = [text.slice(0, index), text.slice(index + found.length)]
  if (found === '{') return `${before}{"${pick(random, STRANGE_KEYS)}":${pick(random, STRANGE_VALUES)},${after}`
  if (found === '[' && random.chance(0.3))
    return `${before}${pick(random, STRANGE_VALUES)}${text.slice(text.lastIndexOf(']') + 1)}`
  if (found === '[') return `${before}[${pick(random, STRANGE_VALUES)},${after}`
  if (found.endsWith(':')) return `${before}"${pick(random, STRANGE_KEYS)}":${after}`
  if (found.startsWith('"') && random.chance(0.4)) {
    const at = 1 + random.below(found.length - 1)
    return `${before}${found.slice(0, at)}${pick(random, STRANGE_LETTERS)}${found.slice(at)}${after}`
  }
  return `${before}${pick(random, STRANGE_VALUES)}${after}`
}

/** Returns text that is cut, extended, changed, nested deeply, or has more white space. */
export function faultyText(random: Random, text: string): string {
  const at = random.below(text.length)
  switch (random.below(5)) {
    case 0:
      return text.slice(0, at)
    case 1:
      return `${text}${pick(random, [' ', ',', '}', '{}', '\u0000', 'x'])}`
    case 2:
      return text.slice(0, at) + String.fromCharCode(random.below(0x10000)) + text.slice(at + 1)
    case 3:
      return random.chance(0.002) ? '['.repeat(LONG) : `${'['.repeat(random.below(200))}${text}`
    default:
      return ` ${text.replaceAll(',', ' ,\n')}\t`
  }
}
