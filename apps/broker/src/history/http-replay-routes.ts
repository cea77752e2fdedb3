/** The routes that read state and history, with responses of any length. */
import { createRoute, z } from '@hono/zod-openapi'
import { PAGE_ROWS_MAX, parseTimestamp } from '@sealpost/replay'
import { hex, security } from '../http/json-schema.ts'
import { refusals } from '../http/route-parts.ts'

const KEYS_MAX = 256

const moment = z
  .string()
  .refine((text) => parseTimestamp(text) !== null)
  .transform((text) => parseTimestamp(text) as number)
  .optional()
  .openapi({ type: 'string', format: 'date-time' })
const seq = z
  .string()
  .regex(/^\d{1,16}$/)
  .transform(Number)
  .pipe(z.int().min(0))
  .openapi({ type: 'integer', minimum: 0 })
const params = z.strictObject({ mesh: hex(16) })
const space = hex(16)

const stream = (description: string) => ({
  description,
  content: {
    'application/x-ndjson': { schema: z.string() },
    'application/octet-stream': { schema: z.string().openapi({ format: 'binary' }) },
  },
})

const codes = ['query_malformed', 'token_invalid', 'space_unknown', 'before_horizon', 'moment_in_future', 'replay_busy'] as const // biome-ignore format: one thing

export const state = createRoute({
  method: 'get',
  path: '/v1/meshes/{mesh}/state',
  summary: 'Read the latest value under every key of a space, now or at a time',
  security,
  request: {
    params,
    query: z.strictObject({
      space,
      at: moment,
      after: seq.optional(),
      keys: z
        .string()
        .regex(new RegExp(`^[0-9a-f]{64}(,[0-9a-f]{64}){0,${KEYS_MAX - 1}}$`))
        .transform((text) => text.split(','))
        .optional()
        .openapi({ type: 'string' }),
    }),
  },
  responses: { 200: stream('Entries ordered by seq, as a stream.'), ...refusals(...codes) },
})

export const history = createRoute({
  method: 'get',
  path: '/v1/meshes/{mesh}/history',
  summary: 'Read the events of a space between two times, one page of them, or new ones',
  security,
  request: {
    params,
    query: z.strictObject({
      space,
      from: moment,
      to: moment,
      after: seq.optional(),
      before: seq.optional(),
      limit: z
        .string()
        .regex(/^\d{1,4}$/)
        .transform(Number)
        .pipe(z.int().min(1).max(PAGE_ROWS_MAX))
        .optional()
        .openapi({ type: 'integer', minimum: 1, maximum: PAGE_ROWS_MAX }),
      follow: z.literal('1').optional(),
    }),
  },
  responses: { 200: stream('Events ordered by seq, as a stream.'), ...refusals(...codes) },
})
