import type { MeshId, SpaceId } from '@sealpost/std'
import type { HttpApi, HttpContext } from '../http/context.ts'
import { type HttpRefusal, isRefused, refuse } from '../http/refusals.ts'
import type { TokenHolder, Tokens } from '../http/tokens.ts'
import type { TransferPace } from '../server/pace.ts'
import { errorFields, type Log } from '../telemetry/log.ts'
import { history, state } from './http-replay-routes.ts'
import { bodyOf, encodingFor } from './replay-body.ts'
import type { Parts, ReplayRequest, Replays } from './replays.ts'

/** A slower reader is cut, and its slot goes to another member. */
const PACE: TransferPace = { bytesPerSecond: 16 * 1024, startMs: 10_000 }
/** The server's maximum; a queued response is silent. */
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
  // A single line would stay in the compressor until others follow.
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
