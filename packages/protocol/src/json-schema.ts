import { unreachable } from '@sealpost/std'
import type { Shape } from './layout.ts'

type Scalar = Extract<Shape, { kind: 'integer' | 'hex' | 'bytes' | 'blob' | 'token' | 'flag' }>
export type ScalarSchema = Record<string, unknown> & { readonly type: 'string' | 'integer' | 'boolean' }

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

/** The end of a base64url text of one byte more: its last digit has zero bits after that byte. */
const TWO_DIGITS = '[A-Za-z0-9_-][AQgw]'
const THREE_DIGITS = '[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048]'

function base64url(min: number, max: number): ScalarSchema {
  const pattern = `^(?:[A-Za-z0-9_-]{4})*(?:${TWO_DIGITS}|${THREE_DIGITS})?$`
  return { type: 'string', pattern, minLength: Math.ceil((min * 4) / 3), maxLength: Math.ceil((max * 4) / 3) }
}
