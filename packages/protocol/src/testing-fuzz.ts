/**
 * A seeded fuzzer of the decoders. Each input is a frame made from the table, or a given one, with a fault or two: bits,
 * cuts, splices, lying lengths and, in the readable form, values of another kind, strange keys and strange numbers.
 *
 * What must hold for each input is checked here, so a longer run is the same call with a larger number.
 */
import { type Random, seededRandom, toHex } from '@sealpost/std'
import { type Decoded, decodeClientFrame, decodeServerFrame, encode, encodeBinary, encodeJson } from './codec.ts'
import { clientFrames, type Frame, type FrameKind, serverFrames } from './frames.ts'
import type { Shape } from './layout.ts'
import { FRAME_BYTES_MAX } from './limits.ts'
import type { Form } from './version.ts'

export interface FuzzOptions {
  readonly seed: number
  readonly inputs: number
  /** Begun from one time in two; the others are made from the table. */
  readonly corpus: readonly Frame[]
}

export interface FuzzReport {
  readonly accepted: number
  /** How often each reason was given. */
  readonly reasons: Readonly<Record<string, number>>
}

/** @throws Error with the seed, the number of the input and the input itself, at the first one that breaks a rule */
export function fuzz({ seed, inputs, corpus }: FuzzOptions): FuzzReport {
  const random = seededRandom(seed)
  const reasons: Record<string, number> = {}
  let accepted = 0
  for (let n = 0; n < inputs; n++) {
    const form: Form = random.chance(0.5) ? 'binary' : 'json'
    const frame = random.chance(0.5) ? pick(random, corpus) : made(random, pick(random, [...kindsByType.values()]))
    const wire = hostileWire(random, frame, form, corpus)
    const decode = isClientFrame(frame) !== random.chance(0.05) ? decodeClientFrame : decodeServerFrame
    try {
      const decoded = decode(form, wire)
      checkDecoded(form, wire, decoded)
      if (decoded.ok) accepted += 1
      else reasons[decoded.reason] = (reasons[decoded.reason] ?? 0) + 1
    } catch (cause) {
      const input = typeof wire === 'string' ? wire : toHex(wire)
      throw new Error(`seed ${seed}, input ${n}, ${form}: ${input.slice(0, 2000)}`, { cause })
    }
  }
  return { accepted, reasons }
}

/** Every reason the decoders may give: fixed texts, so nothing of an input can stand in them. */
export const REASON =
  /^(?:wrong form|frame too long|unknown frame|cut short|trailing bytes|not JSON|not an object|unknown or missing key|missing key|not a list|not a flag|not a token|not base64url|unknown choice|integer over 2\^53 - 1|not an integer in 0\.\.\d+|not \d+ bytes of lower-case hex|not \d+\.\.\d+ bytes|not \d+\.\.\d+ items)$/

function checkDecoded(form: Form, wire: Uint8Array | string, decoded: Decoded<Frame>): void {
  if (!decoded.ok) {
    if (!REASON.test(decoded.reason)) throw new Error(`an unknown reason: ${decoded.reason}`)
    return
  }
  const { frame } = decoded
  const kind = kindsByType.get(frame.type)!
  checkKeys({ ...frame, type: undefined }, kind.body.shape, ['type'])
  // A value has one binary spelling. JSON has white space, orders of keys and spellings of numbers, so it is said again.
  const bytes = encodeBinary(frame)
  if (form === 'binary' && toHex(bytes) !== toHex(wire as Uint8Array)) throw new Error('accepted, but not canonical')
  const decode = isClientFrame(frame) ? decodeClientFrame : decodeServerFrame
  const again = decode('json', encodeJson(frame))
  if (!again.ok || toHex(encodeBinary(again.frame)) !== toHex(bytes)) throw new Error('both forms differ')
}

function checkKeys(value: unknown, shape: Shape, more: readonly string[] = []): void {
  if (shape.kind === 'list') for (const item of value as unknown[]) checkKeys(item, shape.item)
  if (shape.kind !== 'struct') return
  const names = [...shape.fields.map(([name]) => name), ...more]
  const keys = Reflect.ownKeys(value as object)
  if (Object.getPrototypeOf(value) !== Object.prototype) throw new Error('a foreign prototype')
  if (keys.length !== names.length || !keys.every((key) => names.includes(key as string)))
    throw new Error(`keys that are not in the table: ${keys.map(String)}`)
  for (const [name, field] of shape.fields) checkKeys((value as Record<string, unknown>)[name], field)
}

const isClientFrame = ({ type }: Frame) => clientFrames.some((kind) => kind.type === type)
const kindsByType = new Map([...serverFrames, ...clientFrames].map((kind) => [kind.type, kind]))
const pick = <T>(random: Random, items: readonly T[]): T => items[random.below(items.length)]!

function hostileWire(random: Random, frame: Frame, form: Form, corpus: readonly Frame[]): Uint8Array | string {
  const wire = encode(form, frame)
  if (random.chance(0.1)) return wire
  if (typeof wire !== 'string') return faultyBytes(random, wire, corpus)
  const text = random.chance(0.7) ? faultyJson(random, wire) : wire
  return text === wire || random.chance(0.2) ? faultyText(random, text) : text
}

function made(random: Random, kind: FrameKind): Frame {
  return { ...(valueFor(random, kind.body.shape) as object), type: kind.type } as Frame
}

/** A value that the shape accepts. */
export function valueFor(random: Random, shape: Shape): unknown {
  switch (shape.kind) {
    case 'integer':
      return pick(random, [0, 1, shape.max, Math.floor(random.next() * shape.max)])
    case 'hex':
      return toHex(bytesOf(random, shape.length))
    case 'bytes':
      return bytesOf(random, shape.length)
    case 'blob':
      return bytesOf(random, shape.min + random.below(20))
    case 'token':
      return 'x'.repeat(shape.min + random.below(shape.max - shape.min + 1))
    case 'choice':
      return pick(random, shape.names)
    case 'flag':
      return random.chance(0.5)
    case 'list':
      return Array.from({ length: shape.min + random.below(3) }, () => valueFor(random, shape.item))
    case 'struct':
      return Object.fromEntries(shape.fields.map(([name, field]) => [name, valueFor(random, field)]))
  }
}

const bytesOf = (random: Random, length: number) => Uint8Array.from({ length }, () => random.below(256))

function faultyBytes(random: Random, wire: Uint8Array, corpus: readonly Frame[]): Uint8Array {
  const bytes = wire.slice()
  const at = random.below(bytes.length) // no frame is shorter than three bytes
  switch (random.below(7)) {
    case 0:
      bytes[at]! ^= 1 << random.below(8)
      return bytes
    case 1:
      return bytes.subarray(0, at)
    case 2:
      return join(bytes, bytesOf(random, 1 + random.below(8)))
    case 3: // a count, or the end of a length, that lies
      bytes.set(
        pick(random, [
          [0, 0],
          [0, 1],
          [3, 0xe8],
          [3, 0xe9],
          [0xff, 0xff],
        ]),
        Math.min(at, bytes.length - 2),
      )
      return bytes
    case 4:
      return join(bytes.subarray(0, at), encodeBinary(pick(random, corpus)).subarray(at))
    case 5:
      bytes[0] = random.below(256)
      return bytes
    default:
      return random.chance(0.02) ? join(bytes, new Uint8Array(FRAME_BYTES_MAX)) : bytesOf(random, random.below(300))
  }
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

/** Faults of structure: the text of a random value is replaced, removed, renamed or joined by another. */
function faultyJson(random: Random, text: string): string {
  const places = [...text.matchAll(/"[^"]*":|"[^"]*"|-?\d+|true|false|[[{]/g)]
  const { 0: found, index } = pick(random, places)
  const [before, after] = [text.slice(0, index), text.slice(index + found.length)]
  if (found === '{') return `${before}{"${pick(random, STRANGE_KEYS)}":${pick(random, STRANGE_VALUES)},${after}`
  if (found === '[' && random.chance(0.3))
    return `${before}${pick(random, STRANGE_VALUES)}${text.slice(text.lastIndexOf(']') + 1)}`
  if (found === '[') return `${before}[${pick(random, STRANGE_VALUES)},${after}`
  if (found.endsWith(':')) return `${before}"${pick(random, STRANGE_KEYS)}":${after}`
  if (found.startsWith('"') && random.chance(0.4)) {
    const at = 1 + random.below(found.length - 1)
    return `${before}${found.slice(0, at)}${pick(random, ['=', ' ', 'A', 'z', '-', '\\n', '😀', '\\u0041'])}${found.slice(at)}${after}`
  }
  return `${before}${pick(random, STRANGE_VALUES)}${after}`
}

function faultyText(random: Random, text: string): string {
  const at = random.below(text.length)
  switch (random.below(5)) {
    case 0:
      return text.slice(0, at)
    case 1:
      return `${text}${pick(random, [' ', ',', '}', '{}', '\u0000', 'x'])}`
    case 2:
      return text.slice(0, at) + String.fromCharCode(random.below(0x10000)) + text.slice(at + 1)
    case 3:
      return random.chance(0.02) ? '['.repeat(FRAME_BYTES_MAX) : `${'['.repeat(random.below(200))}${text}`
    default:
      return ` ${text.replaceAll(',', ' ,\n')}\t`
  }
}
