/**
 * Encodes and decodes frames in their JSON form, and in the form of a socket. The shapes of `layout.ts` define
 * the JSON form: an object with exactly the fields of a struct, bytes as base64url without padding.
 *
 * A string is checked before it is parsed. Parsing 256 KiB of opening brackets takes 10 ms of CPU, a hundred times as long
 * as a frame of that size; finding the ninth one takes less than 1 µs.
 */

import { fromBase64url, toBase64url, unreachable } from '@sealpost/std'
import {
  binaryForm,
  binaryServerForm,
  type ClientForm,
  type Decoded,
  encodeBinary,
  isTooLarge,
  type KeyProof,
  kindOf,
  type ServerForm,
  TOO_LARGE,
  undecoded,
  type Wire,
  WRONG_FORM,
} from './codec.ts'
import { Malformed } from './cursor.ts'
import {
  type ClientFrame,
  clientFrames,
  type Frame,
  type FrameKind,
  type FrameOf,
  type ServerFrame,
  serverFrames,
} from './frames.ts'
import {
  checkBytes,
  checkFlag,
  checkHex,
  checkInteger,
  checkList,
  checkObject,
  checkToken,
  type Shape,
} from './layout.ts'
import { type Form, FRAME_BYTES_MAX, JSON_DEPTH_MAX, UNPROVEN_FRAME_BYTES_MAX } from './limits.ts'

/** The length up to which members' frames are not scanned, so that a plain message costs nothing extra. */
const UNSCANNED_LENGTH_MAX = 1024
/** Room for white space and other spellings of numbers. */
const SPELLING_FACTOR = 2
const LEADING_TYPE = /^\{\s{0,4}"type"\s{0,4}:\s{0,4}"([A-Za-z]{1,32})"/

const QUOTE = 0x22
const BACKSLASH = 0x5c
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d]

/** Marked as pure for bundlers, because a binary client does not use them. */
const decodeJsonClient = /* @__PURE__ */ jsonDecoder<ClientFrame>(clientFrames)
const decodeJsonServer = /* @__PURE__ */ jsonDecoder<ServerFrame>(serverFrames)
const SUBPROTOCOL = 'sealpost.v1.json'

export const clientForms: Readonly<Record<Form, ClientForm>> = {
  binary: binaryForm,
  json: { subprotocol: SUBPROTOCOL, encode: encodeJson, decode: decodeJsonServer },
}
export const serverForms: Readonly<Record<Form, ServerForm>> = {
  binary: binaryServerForm,
  json: { subprotocol: SUBPROTOCOL, encode: encodeJson, decode: decodeJsonClient },
}

export function decodeClientFrame(form: Form, wire: Wire, proof?: KeyProof): Decoded<ClientFrame> {
  return serverForms[form].decode(wire, proof)
}

export function decodeServerFrame(form: Form, wire: Wire): Decoded<ServerFrame> {
  return clientForms[form].decode(wire)
}

/** Decodes the fields of a frame in their JSON form, without `type`, as HTTP requests carry them. */
export function decodeFields<Type extends ClientFrame['type']>(type: Type, fields: unknown): Decoded<FrameOf<Type>> {
  try {
    return { ok: true, frame: { ...readFields(kindOf(type), fields), type } as FrameOf<Type> }
  } catch (error) {
    return undecoded(error)
  }
}

/** @throws Malformed like `encode` */
export function encodeFields<F extends Frame>(frame: F): JsonFields<F> {
  return jsonField(kindOf(frame.type).body.shape).write(frame) as JsonFields<F>
}

export type JsonFields<F> = { readonly [Name in Exclude<keyof F, 'type'>]: Json<F[Name]> }
type Json<T> = T extends Uint8Array
  ? string
  : T extends readonly (infer Item)[]
    ? Json<Item>[]
    : T extends string | number | boolean
      ? T
      : { readonly [Name in keyof T]: Json<T[Name]> }

/** @throws Malformed if the frame could not be decoded again, which is a bug in the caller */
export function encode(form: Form, frame: Frame): Wire {
  return form === 'binary' ? encodeBinary(frame) : encodeJson(frame)
}

export function encodeJson(frame: Frame): string {
  const text = JSON.stringify({ type: frame.type, ...encodeFields(frame) })
  if (text.length > FRAME_BYTES_MAX) throw new Malformed('frame too long')
  return text
}

function jsonDecoder<F extends Frame>(kinds: readonly FrameKind[]) {
  const byName = new Map(kinds.map((kind) => [kind.type, kind]))
  const reasonAgainst = jsonBounds(kinds)

  const read = (text: string): F => {
    const { type, ...fields } = parse(text)
    const kind = typeof type === 'string' ? byName.get(type) : undefined
    if (!kind) throw new Malformed('unknown frame')
    const frame = readFields(kind, fields)
    frame.type = kind.type
    return frame as F
  }

  return (wire: Wire, proof: KeyProof = 'proven'): Decoded<F> => {
    if (typeof wire !== 'string') return WRONG_FORM
    if (isTooLarge(wire, proof)) return TOO_LARGE
    const reason = reasonAgainst(wire, proof)
    if (reason === 'frame too long') return TOO_LARGE
    if (reason) return { ok: false, code: 'frame_malformed', reason }
    try {
      return { ok: true, frame: read(wire) }
    } catch (error) {
      return undecoded(error)
    }
  }
}

function parse(text: string): Record<string, unknown> {
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch {
    throw new Malformed('not JSON') // the parser's message would quote the input
  }
  return checkObject(json)
}

const readFields = ({ body }: FrameKind, json: unknown): Record<string, unknown> =>
  jsonField(body.shape).read(json) as Record<string, unknown>

/** Both functions check the value. @throws Malformed */
interface JsonField {
  read(json: unknown): unknown
  write(value: unknown): unknown
}

const known = new WeakMap<Shape, JsonField>()

function jsonField(shape: Shape): JsonField {
  const field = known.get(shape) ?? newField(shape)
  known.set(shape, field)
  return field
}

function newField(shape: Shape): JsonField {
  switch (shape.kind) {
    case 'integer':
      return asItIs((value) => checkInteger(value, shape.max))
    case 'flag':
      return asItIs(checkFlag)
    case 'hex':
      return asItIs((value) => checkHex(value, shape.length))
    case 'token':
      return asItIs((value) => checkToken(value, shape.min, shape.max))
    case 'choice':
      return asItIs((value) => checkChoice(value, shape.names))
    case 'bytes':
      return base64Field(shape.length, shape.length)
    case 'blob':
      return base64Field(shape.min, shape.max)
    case 'list':
      return listField(shape)
    case 'struct':
      return structField(shape)
    default:
      return unreachable(shape)
  }
}

const asItIs = (check: (value: unknown) => unknown): JsonField => ({ read: check, write: check })

function checkChoice(value: unknown, names: readonly unknown[]): unknown {
  if (!names.includes(value)) throw new Malformed('unknown choice')
  return value
}

const base64Field = (min: number, max: number): JsonField => ({
  read: (json) => checkBytes(decodeBase64url(json, max), min, max),
  write: (value) => toBase64url(checkBytes(value, min, max)),
})

/** Decodes strictly: the string must equal the encoding of the decoded bytes. */
function decodeBase64url(json: unknown, max: number): Uint8Array {
  if (typeof json !== 'string' || json.length > Math.ceil((max * 4) / 3)) throw new Malformed('not base64url')
  try {
    return fromBase64url(json)
  } catch {
    throw new Malformed('not base64url')
  }
}

function listField({ item, min, max }: Extract<Shape, { kind: 'list' }>): JsonField {
  const { read, write } = jsonField(item)
  return {
    read: (json) => checkList(json, min, max).map((value) => read(value)),
    write: (value) => checkList(value, min, max).map((one) => write(one)),
  }
}

function structField({ fields: shapes }: Extract<Shape, { kind: 'struct' }>): JsonField {
  const names = shapes.map(([name]) => name)
  const parts = shapes.map(([, shape]) => jsonField(shape))
  return {
    read: (json) => {
      const from = checkObject(json)
      // Compare the number of keys, so that an unknown one, even `__proto__`, is refused.
      if (Object.keys(from).length !== names.length) throw new Malformed('unknown or missing key')
      const value: Record<string, unknown> = {}
      for (let i = 0; i < parts.length; i++) {
        const name = names[i]!
        if (!Object.hasOwn(from, name)) throw new Malformed('missing key')
        value[name] = parts[i]!.read(from[name])
      }
      return value
    },
    write: (value) => {
      const from = checkObject(value)
      return Object.fromEntries(names.map((name, i) => [name, parts[i]!.write(from[name])]))
    },
  }
}

type Reason = 'nested too deep' | 'type not first' | 'frame too long'

function jsonBounds(kinds: readonly FrameKind[]): (text: string, proof: KeyProof) => Reason | null {
  const lengthMax = new Map(kinds.map(({ type, body }) => [type, SPELLING_FACTOR * jsonLengthMax(body.shape)]))
  return (text, proof) => {
    if (text.length <= UNSCANNED_LENGTH_MAX && proof === 'proven') return null
    if (isNestedDeeper(text, JSON_DEPTH_MAX)) return 'nested too deep'
    if (text.length <= UNPROVEN_FRAME_BYTES_MAX) return null
    const type = LEADING_TYPE.exec(text)?.[1]
    if (type === undefined) return 'type not first'
    return text.length > (lengthMax.get(type) ?? 0) ? 'frame too long' : null
  }
}

/**
 * Returns whether lists and objects nest deeper than `depthMax`. Scans the text once, which costs a small fraction of
 * parsing it. The result for invalid JSON is arbitrary.
 */
export function isNestedDeeper(text: string, depthMax: number): boolean {
  let depth = 0
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (code === QUOTE) i = endOfString(text, i)
    else if (code === OPEN_LIST || code === OPEN_OBJECT) depth += 1
    else if (code === CLOSE_LIST || code === CLOSE_OBJECT) depth -= 1
    if (depth > depthMax) return true
  }
  return false
}

function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let escapes = 0
    while (text.charCodeAt(end - 1 - escapes) === BACKSLASH) escapes += 1
    if (escapes % 2 === 0) return end
  }
  return text.length
}

export function jsonLengthMax(shape: Shape): number {
  switch (shape.kind) {
    case 'integer':
      return String(shape.max).length
    case 'flag':
      return 'false'.length
    case 'hex':
      return 2 * shape.length + 2
    case 'bytes':
      return Math.ceil((shape.length * 4) / 3) + 2
    case 'blob':
      return Math.ceil((shape.max * 4) / 3) + 2
    case 'token':
      return 2 * shape.max + 2
    case 'choice':
      return Math.max(...shape.names.map((name) => name.length)) + 2
    case 'list':
      return shape.max * (jsonLengthMax(shape.item) + 1) + 2
    default:
      return shape.fields.reduce((sum, [name, field]) => sum + name.length + 4 + jsonLengthMax(field), 2)
  }
}

type Scalar = Extract<Shape, { kind: 'integer' | 'hex' | 'bytes' | 'blob' | 'token' | 'flag' }>
type ScalarSchema = Record<string, unknown> & { readonly type: 'string' | 'integer' | 'boolean' }

export function scalarSchema(shape: Scalar): ScalarSchema {
  switch (shape.kind) {
    case 'integer':
      return { type: 'integer', minimum: 0, maximum: shape.max }
    case 'hex':
      return { type: 'string', pattern: `^[0-9a-f]{${shape.length * 2}}$` }
    case 'bytes':
      return base64url(shape.length, shape.length)
    case 'blob':
      return base64url(shape.min, shape.max)
    case 'token':
      return { type: 'string', pattern: '^[ -~]*$', minLength: shape.min, maxLength: shape.max }
    case 'flag':
      return { type: 'boolean' }
    default:
      return unreachable(shape)
  }
}

/** Matches the last two digits of a base64url string for one remaining byte, whose lowest four bits are zero. */
const TWO_DIGITS = '[A-Za-z0-9_-][AQgw]'
const THREE_DIGITS = '[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048]'

function base64url(min: number, max: number): ScalarSchema {
  const pattern = `^(?:[A-Za-z0-9_-]{4})*(?:${TWO_DIGITS}|${THREE_DIGITS})?$`
  return { type: 'string', pattern, minLength: Math.ceil((min * 4) / 3), maxLength: Math.ceil((max * 4) / 3) }
}
