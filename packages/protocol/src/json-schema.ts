/** The JSON form of single values as JSON Schema, for descriptions of composed types. */
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

/** What does not end a group of four digits of base64url: its last digit has zeros where no byte is left. */
const TWO_DIGITS = '[A-Za-z0-9_-][AQgw]'
const THREE_DIGITS = '[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048]'

/** So many bytes have so many digits and no others, so bounds of the text are bounds of the bytes. */
function base64url(min: number, max: number): ScalarSchema {
  const pattern = `^(?:[A-Za-z0-9_-]{4})*(?:${TWO_DIGITS}|${THREE_DIGITS})?$`
  return { type: 'string', pattern, minLength: Math.ceil((min * 4) / 3), maxLength: Math.ceil((max * 4) / 3) }
}
