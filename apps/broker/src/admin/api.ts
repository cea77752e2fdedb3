/** Serves the admin API: authentication, authorization, and handlers. `routes.ts` defines the requests. */

import { OpenAPIHono } from '@hono/zod-openapi'
import type { RevokedMember } from '@sealpost/core'
import type { Driver } from '@sealpost/driver'
import type { Purge } from '@sealpost/operator'
import { type Database, DatabaseError } from '@sealpost/pg'
import { type DeliveryId, type InviteId, type MeshId, type Millis, OperatingError, type PeerKey } from '@sealpost/std'
import {
  type AdminScope,
  type AdminTokenHolder,
  type DeadLetterFilter,
  findAdminToken,
  purgeDeadLetters,
  redriveDeadLetters,
  revokeInvite,
  revokePeer,
} from '@sealpost/store'
import type { Context, MiddlewareHandler } from 'hono'
import { HTTPException } from 'hono/http-exception'
import type { Config } from '../config/config.ts'
import type { DatabaseWatch } from '../database/watch.ts'
import type { Overload } from '../server/overload.ts'
import type { VersionFacts } from '../server/server.ts'
import { errorFields, type Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { MeshStates } from './reports/mesh-states.ts'
import { Census, databaseFigures, type QuotaParts, QuotaView } from './reports/quotas.ts'
import { Views } from './reports/views.ts'
import * as routes from './routes.ts'
import {
  ADMIN_DOCUMENT_PATH,
  type AdminCode,
  adminDocument,
  adminRefusals,
  BrokerSamples,
  SAMPLE_EVERY_MS,
} from './routes.ts'

interface AdminStart {
  readonly driver: Driver
  readonly metrics: Metrics
  readonly watch: DatabaseWatch
  readonly overload: Overload
  /** `operating` has its own connections, so that operators' queries do not delay peers' requests. */
  readonly databases: { readonly operating: Database; readonly asking: Database }
  readonly facts: VersionFacts
  readonly config: Config
  readonly queue: QuotaParts['queue']
  readonly log: Log
}

export function openAdmin({ databases, driver, metrics, watch, overload, facts, config, queue, log }: AdminStart) {
  const { engine } = driver
  const { operating: db, asking } = databases
  const accepted = () => engine.counters.accepted
  const census = new Census(db, accepted, (error) => log.warn('census.failed', errorFields(error)))
  const depth = () => census.counted.depth
  const oldestAgeMs = () => census.ageMs(census.counted.oldestAtMs)
  metrics.show({
    queue_depth: ['waiting deliveries, as of the last count of the queue', depth],
    queue_oldest_seconds: ['age of the oldest waiting delivery', () => oldestAgeMs() / 1000],
  })
  const history = new BrokerSamples({
    metrics,
    counters: () => engine.counters,
    gauges: () => ({ sessions: engine.sessionCount, depth: depth(), oldestAgeMs: oldestAgeMs() }),
  })
  const views = new Views({
    db,
    facts,
    census,
    history,
    states: new MeshStates({ db, census, livePeers: (meshId) => engine.presence.livePeers(meshId) }),
    figures: databaseFigures(db),
    connections: () => driver.connectionCount,
    warnings: () => [...watch.warnings, ...(overload.reason ? [`overloaded (${overload.reason})`] : [])],
    health: () => watch.health,
    statementsWaiting: () => asking.waitingCount,
  })
  const quotas = new QuotaView({ db, queue, census, config })
  const disconnectMembers = (members: readonly RevokedMember[]) =>
    driver.step(() => {
      for (const member of members) engine.disconnectMember(member)
    })
  return {
    app: adminApi({ db, auth: new AdminAuth(db), views, quotas, history, log, disconnectMembers }),
    stop: (): void => {
      census.stop()
      history.stop()
    },
  }
}

interface Needed {
  readonly scope: AdminScope
  /** The requested mesh. `own` means the token's mesh; null means none or all. */
  readonly meshId: MeshId | 'own' | null
}

/**
 * How long a token is cached. Until then, a revocation may have no effect, and reads need no database.
 */
const BELIEVED_MS = 3000
const BELIEVED_WHILE_AWAY_MS = 5 * 60_000
const BELIEVED_MAX = 1000
/** The maximum number of concurrent checks, each of which takes a connection that invalid tokens could use up. */
const QUESTIONS_MAX = 16

interface Belief {
  readonly holder: AdminTokenHolder
  readonly foundAtMs: Millis
}

export class AdminAuth {
  private readonly db: Database
  /** Keyed by the hash of a token, so that a heap dump contains none. */
  private readonly believed = new Map<string, Belief>()
  private questions = 0

  constructor(db: Database) {
    this.db = db
  }

  /** Returns the refusal of a request, or null. @throws OperatingError if the database does not respond */
  async admit(header: string | undefined, needed: Needed): Promise<AdminTokenHolder | AdminCode> {
    const token = /^Bearer (spa_[A-Za-z0-9_-]{1,100})$/.exec(header ?? '')?.[1]
    if (!token) return 'token_invalid'
    const holder = await this.holderOf(token, needed.scope)
    if (typeof holder === 'string') return holder
    const mayChange = needed.scope === 'read' || holder.scope === 'operate'
    const mayReach = holder.meshId === null || [holder.meshId, 'own'].includes(needed.meshId ?? '')
    return mayChange && mayReach ? holder : 'scope_missing'
  }

  private async holderOf(token: string, scope: AdminScope): Promise<AdminTokenHolder | AdminCode> {
    const name = new Bun.CryptoHasher('sha256').update(token).digest('hex')
    const belief = this.believed.get(name)
    if (belief && ageOf(belief) < Math.min(BELIEVED_MS, belief.holder.remainingMs)) return belief.holder
    if (this.questions >= QUESTIONS_MAX) return 'too_many_requests'
    this.questions += 1
    try {
      const found = await findAdminToken(this.db, token)
      this.believed.delete(name)
      if (found) this.believe(name, found)
      return found ?? 'token_invalid'
    } catch (error) {
      const isKnown = belief && ageOf(belief) < Math.min(BELIEVED_WHILE_AWAY_MS, belief.holder.remainingMs)
      if (error instanceof OperatingError && isKnown && scope === 'read') return belief.holder
      throw error
    } finally {
      this.questions -= 1
    }
  }

  private believe(name: string, holder: AdminTokenHolder): void {
    this.believed.set(name, { holder, foundAtMs: performance.now() })
    if (this.believed.size > BELIEVED_MAX) this.believed.delete(this.believed.keys().next().value!)
  }
}

const ageOf = ({ foundAtMs }: Belief): Millis => performance.now() - foundAtMs

const LOOPBACK_NAME = /^([a-z0-9_-]+\.)*localhost$/

/** Returns the refusal of a request whose host is neither loopback nor in `names`, or null. */
export function hostRefusal(request: Request, names: readonly string[]): Response | null {
  const host = hostOf(request)
  if (host !== null && (isAddress(host) || LOOPBACK_NAME.test(host) || names.includes(host))) return null
  return Response.json({ code: 'wrong_authority' }, { status: 421 })
}

function hostOf(request: Request): string | null {
  const url = `http://${request.headers.get('host') ?? ''}`
  return URL.canParse(url) ? new URL(url).hostname.toLowerCase() : null
}

const isAddress = (host: string): boolean => host.startsWith('[') || /^\d+\.\d+\.\d+\.\d+$/.test(host)

export interface AdminParts {
  readonly db: Database
  readonly auth: AdminAuth
  readonly views: Views
  readonly quotas: QuotaView
  readonly history: BrokerSamples
  readonly log: Log
  readonly disconnectMembers: (members: readonly RevokedMember[]) => void
}

type Env = { Variables: { holder: AdminTokenHolder } }
type Api = OpenAPIHono<Env>

const AT_A_TIME = 64
const SQL_FORBIDDEN = '42501'

export function adminApi(parts: AdminParts): Api {
  const app: Api = new OpenAPIHono<Env>({
    defaultHook: (result, c) => {
      if (result.success) return undefined
      return refuse(c, result.target === 'json' ? 'body_malformed' : 'query_malformed')
    },
  })
  app.use(`${routes.ADMIN_PATH}/*`, ownOrigin, fewAtATime())
  for (const { method, path } of routes.readRoutes) app.on(method, honoPath(path), admit(parts, 'read'))
  for (const { method, path } of routes.changeRoutes) app.on(method, honoPath(path), admit(parts, 'operate'))
  addViews(app, parts)
  addMeshes(app, parts)
  addDeadLetters(app, parts)
  let document: ReturnType<typeof adminDocument> | undefined // built late, because that takes 25 ms
  app.get(ADMIN_DOCUMENT_PATH, (c) => {
    document ??= adminDocument()
    return c.json(document)
  })
  app.all(`${routes.ADMIN_PATH}/*`, unknownPath)
  app.onError((error, c) => {
    if (error instanceof HTTPException) return refuse(c, 'body_malformed')
    if (error instanceof DatabaseError && error.sqlstate === SQL_FORBIDDEN) return refuse(c, 'database_forbids')
    if (error instanceof OperatingError) return refuse(c, error.code === 'scope_missing' ? error.code : 'try_later')
    parts.log.error('admin.fault', errorFields(error))
    return refuse(c, 'internal')
  })
  return app
}

function addViews(app: Api, { views, history }: AdminParts): void {
  app.openapi(routes.me, (c) => {
    const { name, scope, meshId } = c.var.holder
    return c.json({ name, scope, meshId }, 200)
  })
  app.openapi(routes.shards, async (c) => c.json(await views.shards(), 200))
  app.openapi(routes.overview, async (c) => c.json(await views.overview(), 200))
  app.openapi(routes.history, (c) => c.json({ everyMs: SAMPLE_EVERY_MS, samples: history.samples }, 200))
  app.openapi(routes.live, (c) => liveAnswer({ views, history }, c.req.raw.signal))
  app.openapi(routes.database, async (c) => c.json(await views.database(), 200))
  app.openapi(routes.audit, async (c) => {
    const { meshId, before, limit } = c.req.valid('query')
    return c.json(await views.audit({ meshId: meshFor(c.var.holder, meshId), before, limit }), 200)
  })
}

function addMeshes(app: Api, { db, views, quotas, disconnectMembers }: AdminParts): void {
  app.openapi(routes.meshes, async (c) => {
    const { after, limit, order } = c.req.valid('query')
    const page = { after: (after as MeshId | undefined) ?? null, limit }
    return c.json(await (order === 'id' ? views.meshes(page) : views.meshesByNeed(page)), 200)
  })
  app.openapi(routes.mesh, async (c) => {
    const mesh = await views.mesh(meshOf(c.req.valid('param')))
    return mesh ? c.json(mesh, 200) : refuse(c, 'not_found')
  })
  app.openapi(routes.peers, async (c) => {
    const { after, limit } = c.req.valid('query')
    const page = { after: (after as PeerKey | undefined) ?? null, limit }
    return c.json(await views.peers(meshOf(c.req.valid('param')), page), 200)
  })
  app.openapi(routes.waiting, async (c) =>
    c.json(await views.waiting(meshOf(c.req.valid('param')), c.req.valid('query').limit), 200),
  )
  app.openapi(routes.groups, async (c) => c.json(await views.groups(meshOf(c.req.valid('param'))), 200))
  app.openapi(routes.invites, async (c) => c.json(await views.invites(meshOf(c.req.valid('param'))), 200))
  app.openapi(routes.kept, async (c) => c.json(await views.kept(meshOf(c.req.valid('param'))), 200))
  app.openapi(routes.quotas, async (c) => {
    const found = await quotas.of(meshOf(c.req.valid('param')))
    return found ? c.json(found, 200) : refuse(c, 'not_found')
  })
  app.openapi(routes.revokePeer, async (c) => {
    const { meshId, peerKey } = c.req.valid('param') as { meshId: MeshId; peerKey: PeerKey }
    const ended = await revokePeer(db, c.var.holder.name, { meshId, peerKey })
    disconnectMembers(ended.map((member) => ({ ...member, meshId })))
    return ended.length > 0 ? c.json({ peers: ended.map(({ peerKey }) => peerKey) }, 200) : refuse(c, 'not_found')
  })
  app.openapi(routes.revokeInvite, async (c) => {
    const invite = c.req.valid('param') as { meshId: MeshId; inviteId: InviteId }
    const isThere = await revokeInvite(db, c.var.holder.name, invite)
    return isThere ? c.body(null, 204) : refuse(c, 'not_found')
  })
}

function addDeadLetters(app: Api, { db, views }: AdminParts): void {
  app.openapi(routes.deadLetters, async (c) => {
    const { limit, ...filter } = c.req.valid('query')
    return c.json(await views.deadLetters(filterOf(filter, c.var.holder), limit), 200)
  })
  app.openapi(routes.preparedSends, async (c) => {
    const { meshId, ...filter } = c.req.valid('query')
    return c.json(await views.preparedSends({ ...filter, meshId: meshFor(c.var.holder, meshId) }), 200)
  })
  app.openapi(routes.redrive, async (c) => {
    const { ttlSeconds, ...chosen } = c.req.valid('json')
    const operator = c.var.holder.name
    const { refused, ...counts } = await redriveDeadLetters(db, filterOf(chosen, c.var.holder), {
      ttlSeconds,
      operator,
    })
    return c.json({ ...counts, refused: [...refused] }, 200)
  })
  app.openapi(routes.purge, async (c) => {
    const purged = await purgeDeadLetters(db, filterOf(c.req.valid('json'), c.var.holder), c.var.holder.name)
    return c.json({ purged }, 200)
  })
}

function filterOf(
  { ids, meshId, recipient, reason, olderThanSeconds }: Omit<Purge, 'all'>,
  holder: AdminTokenHolder,
): DeadLetterFilter {
  // // biome-ignore format: one thing
  const mesh = meshFor(holder, meshId)
  return {
    ...(ids && { ids: ids as DeliveryId[] }),
    ...(mesh && { meshId: mesh }),
    ...(recipient && { recipient: recipient as PeerKey }),
    ...(reason && { reason }),
    ...(olderThanSeconds !== undefined && { olderThanSeconds }),
  }
}

/** Returns the mesh to show. A token for one mesh gives no access to others. @throws OperatingError `scope_missing` */
function meshFor({ meshId: own }: AdminTokenHolder, asked: string | undefined): MeshId | undefined {
  if (own !== null && asked !== undefined && asked !== own) throw new OperatingError('scope_missing', 'another mesh')
  return own ?? (asked as MeshId | undefined)
}

const meshOf = ({ meshId }: { meshId: string }): MeshId => meshId as MeshId
const honoPath = (path: string): string => path.replaceAll(/\{(\w+)\}/g, ':$1')

/** Routes on which a token for one mesh sees only that mesh. */
const OF_OWN_MESH = /^\/(?:dead-letters|prepared-sends|audit|me)(?:\/|$)/

function admit({ auth }: AdminParts, scope: 'read' | 'operate'): MiddlewareHandler<Env> {
  return async (c, next) => {
    const path = c.req.path.slice(routes.ADMIN_PATH.length)
    const named = /^\/meshes\/([0-9a-f]{32})(?:\/|$)/.exec(path)?.[1] as MeshId | undefined
    const meshId = named ?? (OF_OWN_MESH.test(path) ? 'own' : null)
    const holder = await auth.admit(c.req.header('authorization'), { scope, meshId })
    if (typeof holder === 'string') return refuse(c, holder)
    c.set('holder', holder)
    return next()
  }
}

/** Refuses cross-origin requests, although other pages have no token anyway. */
const ownOrigin: MiddlewareHandler<Env> = async (c, next) => {
  const origin = c.req.header('origin')
  if (origin === undefined) return next()
  const isOwn = URL.canParse(origin) && new URL(origin).host === c.req.header('host')
  return isOwn ? next() : refuse(c, 'origin_not_allowed')
}

function fewAtATime(): MiddlewareHandler<Env> {
  let running = 0
  return async (c, next) => {
    if (running >= AT_A_TIME) return refuse(c, 'too_many_requests')
    running += 1
    return next().finally(() => {
      running -= 1
    })
  }
}

function unknownPath(c: Context): Response {
  const path = c.req.path
  const methods = routes.adminApiRoutes
    .filter((route) => new RegExp(`^${route.path.replaceAll(/\{\w+\}/g, '[^/]+')}$`).test(path))
    .map(({ method }) => method.toUpperCase())
  if (methods.length === 0) return refuse(c, 'not_found')
  return c.json({ code: 'method_not_allowed', meaning: adminRefusals.method_not_allowed.meaning }, 405, {
    Allow: methods.join(', '),
  })
}

function refuse(c: Context, code: AdminCode) {
  const { status, meaning } = adminRefusals[code]
  if (status === 401) c.header('WWW-Authenticate', 'Bearer')
  return c.json({ code, meaning }, status as Exclude<typeof status, 405>)
}

/** The maximum number of waiting overviews, above which a client that stops reading is disconnected. */
const WAITING_MAX = 3
const ENDS_AFTER_MS = 5 * 60_000

export function liveAnswer(
  { views, history }: { views: Views; history: BrokerSamples },
  signal: AbortSignal,
): Response {
  let leave: () => void = () => undefined
  const events = new ReadableStream<Uint8Array>(
    {
      start: (controller) => {
        const send = sender(controller, views, () => leave())
        leave = history.listen(send)
        signal.addEventListener('abort', () => leave(), { once: true })
        send()
      },
      cancel: () => leave(),
    },
    { highWaterMark: WAITING_MAX },
  )
  const headers = { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store', 'X-Accel-Buffering': 'no' }
  return new Response(events, { headers })
}

function sender(controller: ReadableStreamDefaultController<Uint8Array>, views: Views, leave: () => void): () => void {
  const encoder = new TextEncoder()
  const end = () => {
    leave()
    controller.close()
  }
  const untilMs = performance.now() + ENDS_AFTER_MS
  let isAsking = false
  const send = async () => {
    if (isAsking) return
    isAsking = true
    try {
      const overview = await views.overview()
      if ((controller.desiredSize ?? 0) <= 0) throw new Error('the client does not read')
      if (performance.now() > untilMs) return end()
      controller.enqueue(encoder.encode(`event: overview\ndata: ${JSON.stringify(overview)}\n\n`))
    } catch {
      leave()
      controller.error()
    } finally {
      isAsking = false
    }
  }
  return () => void send()
}
