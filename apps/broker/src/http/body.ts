/** Request bodies: limited, charged and checked before they are parsed. */
import { FRAME_BYTES_MAX, isNestedDeeper, JSON_DEPTH_MAX } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'
import type { HttpContext } from './context.ts'
import type { HttpRefusal } from './refusals.ts'

export interface BodyBounds {
  readonly bytesMax: number
  /** Charges the bytes and returns 0, or returns when to retry. */
  readonly charge: (bytes: number) => Millis
  /** Charges bytes that were read, even without remaining budget. */
  readonly owe: (bytes: number) => void
}

/**
 * Reads the body, if there is one, and returns why it must not be parsed, or its length in bytes. A body with a known
 * length is charged, or refused for it, before it is read. One without is read only if nothing is owed, and charged
 * afterwards in any case; the server itself cuts one that is longer than a frame.
 */
export async function boundBody(c: HttpContext, { bytesMax, charge, owe }: BodyBounds): Promise<number | HttpRefusal> {
  const { headers } = c.req.raw
  const named = headers.get('content-length')
  if (named === '0' || (named === null && !headers.has('transfer-encoding'))) return 0
  const bytesNamed = named === null ? null : Number(named)
  if (bytesNamed !== null && bytesNamed > bytesMax) return TOO_LARGE
  const unpaidMs = charge(bytesNamed ?? 1)
  if (unpaidMs > 0) return { code: 'rate_limited', retryAfterMs: unpaidMs }
  const text = await c.req.text().catch(() => null) // too long for the server, or its sender has disconnected
  const bytes = text === null ? FRAME_BYTES_MAX : Buffer.byteLength(text)
  if (bytesNamed === null) owe(bytes)
  if (text === null || bytes > bytesMax) return TOO_LARGE
  return isNestedDeeper(text, JSON_DEPTH_MAX) ? { code: 'body_malformed' } : bytes
}

const TOO_LARGE: HttpRefusal = { code: 'body_too_large' }
