import { createRoute, z } from '@hono/zod-openapi'
import { PAGE_ROWS_MAX, parseTimestamp } from '@sealpost/replay'
import type { MeshId, SpaceId } from '@sealpost/std'
import { hex, security } from '../http/json-schema.ts'
import { type HttpApi, type HttpContext, refusals } from '../http/route-parts.ts'
import { type HttpRefusal, isRefused, refuse, type TokenHolder, type Tokens } from '../http/tokens.ts'
import type { TransferPace } from '../server/connection.ts'
import { errorFields, type Log } from '../telemetry/log.ts'
import { bodyOf, encodingFor } from './replay-body.ts'
import type { Parts, ReplayRequest, Replays } from './replays.ts'

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

/** The minimum rate, below which a response is cut off for other members. */
const PACE: TransferPace = { bytesPerSecond: 16 * 1024, startMs: 10_000 }
/** The idle timeout: the server's maximum, because a queued response is silent. */
const SILENT_SECONDS = 255
const GONE: HttpRefusal = { code: 'try_later' }
const RECORDS = 'application/octet-stream'

export function addReplays(app: HttpApi, parts: ReplayParts): void {
  const { replays } = parts
  app.openapi(state, (c) => {
    const { space, at = null, after = 0, keys = null } = c.req.valid('query')
    const query = { at, after, keys }
    return answer(c, parts, { space, isLong: keys === null }, (asked) => replays.state(asked, query))
  })
  app.openapi(history, (c) => {
    const { space, from = null, to = null, after = 0, before = null, limit = null, follow } = c.req.valid('query')
    const query = { from, to, after, before, limit: before === null ? limit : (limit ?? 100), follows: follow === '1' }
    const isLong = query.limit === null && !query.follows
    return answer(c, parts, { space, isLong }, (asked) => replays.history(asked, query))
  })
}

interface ReplayParts {
  readonly replays: Replays
  readonly tokens: Tokens
  readonly log: Log
}

async function answer(
  c: HttpContext,
  { tokens, log }: ReplayParts,
  { space: spaceId, isLong }: { space: string; isLong: boolean },
  ask: (asked: ReplayRequest) => Promise<Parts | HttpRefusal>,
): Promise<Response> {
  const end = new AbortController()
  const { signal } = c.req.raw
  if (signal.aborted) end.abort()
  signal.addEventListener('abort', () => end.abort(), { once: true })
  c.env.staysSilent(SILENT_SECONDS)
  const holder: TokenHolder = c.var.holder
  const form = isLong && c.req.header('accept') === RECORDS ? 'records' : 'lines'
  const isHolderGood = async () => !isRefused(await tokens.holderOf(c.req.header('authorization')))
  const space = { meshId: c.req.param('mesh') as MeshId, spaceId: spaceId as SpaceId }
  const parts = await ask({ holder, space, form, isHolderGood, signal: end.signal }).catch((error) => {
    if (end.signal.aborted) return GONE
    throw error
  })
  if (isRefused(parts)) return refuse(c, parts)
  // Followed responses are not compressed, because a line would stay in the compressor.
  const isCompressed = c.req.query('follow') === undefined
  const encoding = isCompressed ? encodingFor(c.req.header('accept-encoding')) : null
  const broken = (error: unknown) => {
    if (!end.signal.aborted) log.warn('replay.broken', errorFields(error))
  }
  const headers = {
    'Content-Type': form === 'records' ? RECORDS : 'application/x-ndjson',
    'Cache-Control': 'no-store',
    Vary: 'Accept, Accept-Encoding',
    ...(encoding && { 'Content-Encoding': encoding }),
  }
  return new Response(bodyOf(parts, { end, pace: PACE, encoding, broken }), { headers })
}
