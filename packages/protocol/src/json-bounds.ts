/**
 * Checks a JSON text before it is parsed. Parsing 256 KiB of opening brackets takes 10 ms of CPU, a hundred times as
 * long as a frame of that size; finding the ninth one takes less than 1 µs.
 */

import { unreachable } from '@sealpost/std'
import type { FrameKind } from './frames.ts'
import type { Shape } from './layout.ts'
import { JSON_DEPTH_MAX, UNPROVEN_FRAME_BYTES_MAX } from './limits.ts'

export type KeyProof = 'unproven' | 'proven'
type Reason = 'nested too deep' | 'type not first' | 'frame too long'

/** Texts from members up to this length are not scanned, so a plain message pays nothing. */
const UNSCANNED_LENGTH_MAX = 1024
/** Allows for white space and other spellings of numbers. */
const SPELLING_FACTOR = 2
const LEADING_TYPE = /^\{\s{0,4}"type"\s{0,4}:\s{0,4}"([A-Za-z]{1,32})"/

const QUOTE = 0x22
const BACKSLASH = 0x5c
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d]

export function jsonBounds(kinds: readonly FrameKind[]): (text: string, proof: KeyProof) => Reason | null {
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
 * Returns whether lists and objects nest deeper than `depthMax`. Reads the text once and skips strings, so the scan of
 * large strings costs a small fraction of parsing them. The result for a text that is not JSON is undefined.
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

/** The last digits of a base64url text with one byte more than whole groups; the lowest four bits are zero. */
const TWO_DIGITS = '[A-Za-z0-9_-][AQgw]'
const THREE_DIGITS = '[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048]'

function base64url(min: number, max: number): ScalarSchema {
  const pattern = `^(?:[A-Za-z0-9_-]{4})*(?:${TWO_DIGITS}|${THREE_DIGITS})?$`
  return { type: 'string', pattern, minLength: Math.ceil((min * 4) / 3), maxLength: Math.ceil((max * 4) / 3) }
}
