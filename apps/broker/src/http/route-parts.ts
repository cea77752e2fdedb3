/** Defines the schemas that HTTP routes share: values in their JSON forms, responses and refusals. */
import { type OpenAPIHono, z } from '@hono/zod-openapi'
import { type Rate, Rates } from '@sealpost/core'
import { BATCH_MAX, FRAME_BYTES_MAX, isNestedDeeper, JSON_DEPTH_MAX } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'
import type { Context } from 'hono'
import { hex, type JsonSchema, type ObjectSchema, refusalsFrom, schemaOfItem } from './json-schema.ts'
import { ENVELOPE_DEFAULTS } from './mailbox/send.ts'
import { type HttpCode, type HttpRefusal, httpRefusals, type TokenHolder } from './tokens.ts'

/** Returns a schema, for the documentation only, of a value that the codec validates. */
export const wire = (schema: JsonSchema) => z.unknown().openapi(schema)
export const listOf = (schema: JsonSchema) =>
  z
    .array(wire(schema.items as JsonSchema))
    .max(BATCH_MAX)
    .default([])
export const base64url = (bytes: number) =>
  z
    .string()
    .length(Math.ceil((bytes * 4) / 3))
    .regex(/^[A-Za-z0-9_-]*$/)
export const wholeNumber = (max: number, fallback: number, min = 0) =>
  z
    .string()
    .regex(/^\d{1,4}$/)
    .transform(Number)
    .pipe(z.int().min(min).max(max))
    .default(fallback)
    .openapi({ type: 'integer', minimum: min, maximum: max, default: fallback })

export function sendSchema(): ObjectSchema {
  const optional = Object.keys(ENVELOPE_DEFAULTS)
  return schemaOfItem('send', 'envelopes', { without: ['isHead'], optional })
}

export const Sent = z
  .object({
    results: z.array(
      z
        .object({
          envelopeId: hex(16),
          status: z.enum(['stored', 'duplicate', 'refused']),
          code: z.string().optional(),
          retryAfterMs: z.int().min(0).optional(),
        })
        .openapi('Result'),
    ),
  })
  .openapi('Sent')

const Refusal = z
  .object({ code: z.enum(Object.keys(httpRefusals) as HttpCode[]), retryAfterMs: z.int().min(0).optional() })
  .openapi('Refusal')

const ALWAYS = ['rate_limited', 'too_many_requests', 'internal', 'restarting', 'try_later'] as const

export function refusals(...codes: HttpCode[]) {
  const ofBody: HttpCode[] = codes.includes('body_malformed') ? ['body_too_large'] : []
  return refusalsFrom(httpRefusals, Refusal, [...codes, ...ofBody, ...ALWAYS])
}

export interface Caller {
  readonly ip: string
  readonly authority: string
  /**
   * Charges an unauthenticated client's address for bytes before they are parsed. Returns the milliseconds until a
   * retry, or 0.
   */
  readonly chargeUnproven: (bytes: number) => Millis
  /** Charges bytes that were read, even beyond the budget. */
  readonly oweUnproven: (bytes: number) => void
  staysSilent(seconds: number): void
}

export type Env = { Bindings: Caller; Variables: { holder: TokenHolder } }
export type HttpApi = OpenAPIHono<Env>
export type HttpContext = Context<Env>

/** The limits of a request body, checked before it is parsed. */
interface BodyBounds {
  readonly bytesMax: number
  /** Charges the bytes and returns 0, or returns the milliseconds until a retry. */
  readonly charge: (bytes: number) => Millis
  /** Charges bytes that were read, even beyond the budget. */
  readonly owe: (bytes: number) => void
}

/**
 * Reads the body, if there is one. Returns its length, or a refusal. A known length is charged before the body is read;
 * an unknown one afterwards, if no earlier charge is outstanding. The server cuts off bodies longer than a frame.
 */
export async function boundBody(c: HttpContext, { bytesMax, charge, owe }: BodyBounds): Promise<number | HttpRefusal> {
  const { headers } = c.req.raw
  const named = headers.get('content-length')
  if (named === '0' || (named === null && !headers.has('transfer-encoding'))) return 0
  const bytesNamed = named === null ? null : Number(named)
  if (bytesNamed !== null && bytesNamed > bytesMax) return TOO_LARGE
  const unpaidMs = charge(bytesNamed ?? 1)
  if (unpaidMs > 0) return { code: 'rate_limited', retryAfterMs: unpaidMs }
  const text = await c.req.text().catch(() => null) // too long, or its sender has disconnected
  const bytes = text === null ? FRAME_BYTES_MAX : Buffer.byteLength(text)
  if (bytesNamed === null) owe(bytes)
  if (text === null || bytes > bytesMax) return TOO_LARGE
  return isNestedDeeper(text, JSON_DEPTH_MAX) ? { code: 'body_malformed' } : bytes
}

const TOO_LARGE: HttpRefusal = { code: 'body_too_large' }

const FORGET_EVERY_MS = 10_000

/** Limits the rate and the concurrency of HTTP requests. */
export class RequestLimits {
  private readonly rates: Rates | null
  private readonly atATime: number
  private readonly running = new Map<string, number>()

  constructor(rate: Rate | null, atATime: number) {
    this.rates = rate && new Rates(rate)
    this.atATime = atATime
    if (rate) setInterval(() => this.rates?.forgetFull(performance.now()), FORGET_EVERY_MS).unref()
  }

  /** Admits a request from `who` until `done` is called, or refuses it. `share`: the name for the rate limit. */
  begin(who: string, share = who): HttpRefusal | null {
    const retryAfterMs = this.rates?.take(share, performance.now()) ?? 0
    if (retryAfterMs > 0) return { code: 'rate_limited', retryAfterMs }
    const count = this.running.get(who) ?? 0
    if (count >= this.atATime) return { code: 'too_many_requests' }
    this.running.set(who, count + 1)
    return null
  }

  done(who: string): void {
    const count = this.running.get(who)! - 1
    if (count > 0) this.running.set(who, count)
    else this.running.delete(who)
  }

  get isIdle(): boolean {
    return this.running.size === 0
  }
}
