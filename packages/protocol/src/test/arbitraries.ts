/**
 * Generates fast-check arbitraries of frames from the table, so that a new field in `frames.ts` is tested
 * automatically.
 */
import { toHex } from '@sealpost/std'
import * as fc from 'fast-check'
import type { Frame, FrameKind } from '../frames.ts'
import type { Shape } from '../layout.ts'

/** Returns an arbitrary for frames of this kind. Prefers the ends of ranges, and short blobs and lists. */
export function frameOf(kind: FrameKind): fc.Arbitrary<Frame> {
  return valueFor(kind.body.shape).map((body) => ({ ...(body as object), type: kind.type }) as Frame)
}

function valueFor(shape: Shape): fc.Arbitrary<unknown> {
  switch (shape.kind) {
    case 'integer':
      return fc.oneof(fc.constantFrom(0, 1, shape.max - 1, shape.max), fc.integer({ min: 0, max: shape.max }))
    case 'hex':
      return bytesOf(shape.length, shape.length).map(toHex)
    case 'bytes':
      return bytesOf(shape.length, shape.length)
    case 'blob':
      return bytesOf(shape.min, Math.min(shape.max, shape.min + 60))
    case 'token':
      return fc.string({ unit: 'grapheme-ascii', minLength: shape.min, maxLength: shape.max })
    case 'choice':
      return fc.constantFrom(...shape.names)
    case 'flag':
      return fc.boolean()
    case 'list':
      return fc.array(valueFor(shape.item), { minLength: shape.min, maxLength: Math.min(shape.max, shape.min + 4) })
    case 'struct':
      return fc.record(Object.fromEntries(shape.fields.map(([name, field]) => [name, valueFor(field)])), {
        noNullPrototype: true,
      })
  }
}

const bytesOf = (minLength: number, maxLength: number) =>
  fc.uint8Array({ minLength, maxLength }).map((bytes) => new Uint8Array(bytes))
