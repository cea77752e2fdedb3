/** Schemas of the HTTP routes: values in their JSON forms, responses and refusals. */
import { z } from '@hono/zod-openapi'
import { BATCH_MAX } from '@sealpost/protocol'
import { hex, type JsonSchema, type ObjectSchema, refusalsFrom, schemaOfItem } from './json-schema.ts'
import { ENVELOPE_DEFAULTS } from './mailbox/send.ts'
import { type HttpCode, httpRefusals } from './refusals.ts'

/** A value that the frame codec validates, with the schema from its table. */
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
