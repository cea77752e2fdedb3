/**
 * Encodes and decodes frames. Decoding never throws: it turns hostile input into a refusal that repeats nothing of the
 * input.
 */
import { Malformed, Reader, Writer } from './cursor.ts'
import {
  type ClientFrame,
  clientFrames,
  type Frame,
  type FrameKind,
  type FrameOf,
  type ServerFrame,
  serverFrames,
} from './frames.ts'
import { jsonBounds, type KeyProof } from './json-bounds.ts'
import { type Form, FRAME_BYTES_MAX, UNPROVEN_FRAME_BYTES_MAX } from './limits.ts'

export type Decoded<F> = { ok: true; frame: F } | Undecoded
interface Undecoded {
  readonly ok: false
  readonly code: 'frame_malformed' | 'frame_too_large' | 'wrong_form'
  readonly reason: string
}

/** Decodes a client's frame. Marked as pure for bundlers, because a client does not use it. */
export const decodeClientFrame = /* @__PURE__ */ decoder<ClientFrame>(clientFrames)
export const decodeServerFrame = decoder<ServerFrame>(serverFrames)

/** Decodes the fields of a frame in their JSON form, without `type`, as HTTP requests carry them. */
export function decodeFields<Type extends ClientFrame['type']>(type: Type, fields: unknown): Decoded<FrameOf<Type>> {
  try {
    return { ok: true, frame: { ...byType.get(type)!.body.fromJson(fields), type } as FrameOf<Type> }
  } catch (error) {
    return undecoded(error)
  }
}

/** @throws Malformed like `encode` */
export function encodeFields<F extends Frame>(frame: F): JsonFields<F> {
  return kindOf(frame).body.toJson(frame as unknown as Record<string, unknown>) as JsonFields<F>
}

export type JsonFields<F> = { readonly [Name in Exclude<keyof F, 'type'>]: Json<F[Name]> }
type Json<T> = T extends Uint8Array
  ? string
  : T extends readonly (infer Item)[]
    ? Json<Item>[]
    : T extends string | number | boolean
      ? T
      : { readonly [Name in keyof T]: Json<T[Name]> }

const byType = new Map<string, FrameKind>([...serverFrames, ...clientFrames].map((kind) => [kind.type, kind]))
const writer = new Writer()

/** @throws Malformed if the frame could not be decoded again, which is a bug of the caller */
export function encode(form: Form, frame: Frame): Uint8Array | string {
  return form === 'binary' ? encodeBinary(frame) : encodeJson(frame)
}

export function encodeBinary(frame: Frame): Uint8Array {
  return write(frame).slice()
}

/**
 * Encodes a frame for a socket that copies its argument before `send` returns. The result is valid until the next frame
 * is encoded. Another copy cost a tenth of the broker's CPU in a burst. @throws Malformed
 */
export function encodeToSend(form: Form, frame: Frame): Uint8Array | string {
  return form === 'binary' ? write(frame) : encodeJson(frame)
}

function write(frame: Frame): Uint8Array {
  const kind = byType.get(frame.type)
  if (!kind) throw new Malformed('unknown frame')
  try {
    writer.u8(kind.number)
    kind.body.write(writer, frame as unknown as Record<string, unknown>)
    const bytes = writer.finish()
    if (bytes.length > FRAME_BYTES_MAX) throw new Malformed('frame too long')
    return bytes
  } catch (error) {
    writer.abandon()
    throw error
  }
}

export function encodeJson(frame: Frame): string {
  const body = kindOf(frame).body.toJson(frame as unknown as Record<string, unknown>)
  return whole(JSON.stringify({ type: frame.type, ...(body as object) }))
}

function kindOf(frame: Frame): FrameKind {
  const kind = byType.get(frame.type)
  if (!kind) throw new Malformed('unknown frame')
  return kind
}

/** Checks the size. The length equals the number of bytes in both forms, since the text is ASCII. */
function whole<Wire extends Uint8Array | string>(wire: Wire): Wire {
  if (wire.length > FRAME_BYTES_MAX) throw new Malformed('frame too long')
  return wire
}

function decoder<F extends Frame>(kinds: readonly FrameKind[]) {
  const byNumber = new Map(kinds.map((kind) => [kind.number, kind]))
  const byName = new Map(kinds.map((kind) => [kind.type, kind]))

  const readBinary = (bytes: Uint8Array): F => {
    const reader = new Reader(bytes)
    const kind = byNumber.get(reader.u8())
    if (!kind) throw new Malformed('unknown frame')
    const frame = kind.body.read(reader)
    reader.end()
    frame.type = kind.type
    return frame as F
  }

  const readJson = (text: string): F => {
    const json = parse(text)
    const { type, ...body } = json
    const kind = typeof type === 'string' ? byName.get(type) : undefined
    if (!kind) throw new Malformed('unknown frame')
    const frame = kind.body.fromJson(body)
    frame.type = kind.type
    return frame as F
  }

  const boundJson = jsonBounds(kinds)

  return (form: Form, wire: Uint8Array | string, proof: KeyProof = 'proven'): Decoded<F> => {
    if ((form === 'json') !== (typeof wire === 'string')) return WRONG_FORM
    if (wire.length > (proof === 'proven' ? FRAME_BYTES_MAX : UNPROVEN_FRAME_BYTES_MAX)) return TOO_LARGE
    try {
      if (typeof wire !== 'string') return { ok: true, frame: readBinary(wire) }
      const reason = boundJson(wire, proof)
      if (reason === 'frame too long') return TOO_LARGE
      if (reason) return { ok: false, code: 'frame_malformed', reason }
      return { ok: true, frame: readJson(wire) }
    } catch (error) {
      return undecoded(error)
    }
  }
}

const WRONG_FORM: Undecoded = { ok: false, code: 'wrong_form', reason: 'wrong form' }
const TOO_LARGE: Undecoded = { ok: false, code: 'frame_too_large', reason: 'frame too long' }

function undecoded(error: unknown): Undecoded {
  if (error instanceof Malformed) return { ok: false, code: 'frame_malformed', reason: error.message }
  throw error
}

function parse(text: string): Record<string, unknown> {
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch {
    throw new Malformed('not JSON') // the parser's message would repeat the input
  }
  if (typeof json !== 'object' || json === null || Array.isArray(json)) throw new Malformed('not an object')
  return json as Record<string, unknown>
}
