/**
 * Fuzzes the decoders from a seed. Each input is a generated or given frame with one or two faults: bits, cuts,
 * splices, false lengths and, in JSON, values of another type, unknown keys and unusual numbers. One input in ten is
 * random. The fuzzer checks the rules for each input, so a longer run only needs a larger number of inputs.
 */

import { type Random, seededRandom, toHex } from '@sealpost/std'
import { bytesOf, faultyBytes, faultyJson, faultyText, pick } from '@sealpost/std/testing'
import { samples } from '../../vectors/samples.ts'
import { type Decoded, encodeBinary } from '../codec.ts'
import { clientFrames, type Frame, type FrameKind, serverFrames } from '../frames.ts'
import { decodeClientFrame, decodeServerFrame, encode, encodeJson } from '../json.ts'
import type { Shape } from '../layout.ts'
import type { Form } from '../limits.ts'

export interface FuzzOptions {
  readonly seed: number
  readonly inputs: number
}

export interface FuzzReport {
  readonly accepted: number
  readonly reasons: Readonly<Record<string, number>>
}

/**
 * Runs the fuzzer. @throws Error at the first violation, with the seed, the number of the input and the input itself
 */
export function fuzz({ seed, inputs }: FuzzOptions): FuzzReport {
  const random = seededRandom(seed)
  const reasons: Record<string, number> = {}
  let accepted = 0
  for (let n = 0; n < inputs; n++) {
    const form: Form = random.chance(0.5) ? 'binary' : 'json'
    const frame = random.chance(0.5) ? pick(random, corpus) : made(random, pick(random, kinds))
    const wire = hostileWire(random, frame, form)
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

/** Matches all reasons of the decoders, which are fixed strings, so that none quotes the input. */
export const REASON =
  /^(?:wrong form|frame too long|nested too deep|type not first|unknown frame|cut short|trailing bytes|not JSON|not an object|unknown or missing key|missing key|not a list|not a flag|not a token|not base64url|unknown choice|integer over 2\^53 - 1|not an integer in 0\.\.\d+|not \d+ bytes of lower-case hex|not \d+\.\.\d+ bytes|not \d+\.\.\d+ items)$/

function checkDecoded(form: Form, wire: Uint8Array | string, decoded: Decoded<Frame>): void {
  if (!decoded.ok) {
    if (!REASON.test(decoded.reason)) throw new Error(`an unknown reason: ${decoded.reason}`)
    return
  }
  const { frame } = decoded
  const kind = kindsByType.get(frame.type)!
  checkKeys({ ...frame, type: undefined }, kind.body.shape, ['type'])
  // A value has one binary encoding, but several in JSON, so compare encodings of the decoded frame.
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

const isClientFrame = ({ type }: Frame) => clientTypes.has(type)
/** Samples from which half of the inputs start; the others are generated. */
const corpus: readonly Frame[] = samples.map(({ frame }) => frame)
const kinds = [...serverFrames, ...clientFrames]
const kindsByType = new Map(kinds.map((kind) => [kind.type, kind]))
const clientTypes = new Set(clientFrames.map(({ type }) => type))

function hostileWire(random: Random, frame: Frame, form: Form): Uint8Array | string {
  if (random.chance(0.1)) return rawWire(random, form)
  const wire = encode(form, frame)
  if (random.chance(0.1)) return wire
  if (typeof wire !== 'string') return faultyBytes(random, wire, encodeBinary(pick(random, corpus)))
  const text = random.chance(0.7) ? faultyJson(random, wire) : wire
  return text === wire || random.chance(0.2) ? faultyText(random, text) : text
}

/** Returns a frame number followed by random bytes, or a random string of JSON characters. */
function rawWire(random: Random, form: Form): Uint8Array | string {
  const bytes = bytesOf(random, 1 + random.below(400))
  if (form === 'json') return Array.from(bytes, (byte) => LETTERS[byte % LETTERS.length]).join('')
  if (random.chance(0.8)) bytes[0] = pick(random, kinds).number
  return bytes
}
const LETTERS = '{}[]",:0123456789eE+-.\\ \ntruefalsé\u0000'

/** Values that inputs contain especially often. */
export interface Known {
  readonly integers: readonly number[]
  readonly hex: readonly string[]
  readonly blobs: readonly Uint8Array[]
}
const NOTHING: Known = { integers: [], hex: [], blobs: [] }

export function made(random: Random, kind: FrameKind, known: Known = NOTHING): Frame {
  return { ...(valueFor(random, kind.body.shape, known) as object), type: kind.type } as Frame
}

export function valueFor(random: Random, shape: Shape, known: Known = NOTHING): unknown {
  const good = random.chance(0.7) ? knownFor(shape, known) : []
  if (good.length > 0) return pick(random, good)
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
      return Array.from({ length: shape.min + random.below(3) }, () => valueFor(random, shape.item, known))
    case 'struct':
      return Object.fromEntries(shape.fields.map(([name, field]) => [name, valueFor(random, field, known)]))
  }
}

function knownFor(shape: Shape, { integers, hex, blobs }: Known): readonly unknown[] {
  if (shape.kind === 'integer') return integers.filter((integer) => integer <= shape.max)
  if (shape.kind === 'hex') return hex.filter(({ length }) => length === shape.length * 2)
  if (shape.kind !== 'blob') return []
  return blobs.filter(({ length }) => length >= shape.min && length <= shape.max)
}
