/** Serves clients that use HTTP instead of a socket: authentication, limits and handlers. */

import { OpenAPIHono, type z } from '@hono/zod-openapi'
import type { Rate } from '@sealpost/core'
import type { Driver } from '@sealpost/driver'
import type { Database } from '@sealpost/pg'
import { decodeFields, encodeFields, type FrameOf, PRIORITIES } from '@sealpost/protocol'
import type { Queue } from '@sealpost/queue'
import { type EnvelopeId, type GroupId, type Millis, OperatingError, type PeerKey } from '@sealpost/std'
import { countWaiting, listWaiting, type WaitingDelivery } from '@sealpost/store'
import type { Context, MiddlewareHandler } from 'hono'
import { HTTPException } from 'hono/http-exception'
import { type AttachmentParts, addAttachments } from '../attachments/http.ts'
import type { Authenticator, BrokerKeys } from '../directory/authenticator.ts'
import { addReplays } from '../history/http-replay.ts'
import type { Replays } from '../history/replays.ts'
import { addMeshLog } from '../mesh-log/http.ts'
import { MeshLogs } from '../mesh-log/mesh-logs.ts'
import type { Intakes } from '../server/intake.ts'
import { addSpaces } from '../spaces/http.ts'
import type { SpaceRequests } from '../spaces/space-requests.ts'
import { errorFields, type Log } from '../telemetry/log.ts'
import { DOCUMENT_PATH, openApiDocument } from './discovery.ts'
import { GroupRosters } from './mailbox/group-routes.ts'
import { Inboxes, pollResultJson, type Settling } from './mailbox/polled-connection.ts'
import { addPrekeys } from './mailbox/prekeys.ts'
import * as routes from './mailbox/routes.ts'
import { readBroadcast, readEnvelopes, type Sending, sendOnce } from './mailbox/send.ts'
import { SentMessages } from './mailbox/sent.ts'
import { addOwnKeys, type OwnKeyParts } from './own-keys.ts'
import { addProofs } from './proofs.ts'
import { boundBody, type Env, type HttpApi, RequestLimits } from './route-parts.ts'
import {
  Challenges,
  type HttpCode,
  isRefused,
  nameOf,
  refuse,
  shareNameOf,
  type TokenHolder,
  Tokens,
} from './tokens.ts'

interface Parts extends Pick<OwnKeyParts, 'settings' | 'keyChanged'> {
  readonly driver: Driver
  readonly queue: Queue
  readonly attachments: AttachmentParts
  readonly spaces: SpaceRequests
  readonly replays: Replays
  readonly log: Log
}

interface StartParts extends Parts {
  readonly db: Database
  readonly authenticator: Authenticator
  readonly keys: BrokerKeys
}

interface ApiParts extends Omit<StartParts, 'keys'> {
  readonly logs: MeshLogs
  readonly groups: GroupRosters
  readonly tokens: Tokens
  readonly challenges: Challenges
  readonly inboxes: Inboxes
  readonly sent: SentMessages
  readonly unproven: RequestLimits
  readonly peers: RequestLimits
  /** Limits the bytes parsed per peer; `null` for no limit. */
  readonly intakes: Intakes | null
}

interface Options {
  readonly greet: () => FrameOf<'hello'>
  readonly pollingIdleMs: Millis
  readonly failedAttemptsMax: number
  /** The request rate of one peer; `null` disables rate limits. */
  readonly rate: Rate | null
  /** Limits the bytes parsed per peer, over HTTP and sockets; `null` for no limit. */
  readonly intakes: Intakes | null
}

/** The rate of token requests, each of which costs a signature and a database lookup. */
const UNPROVEN_RATE: Rate = { perSecond: 20, burst: 100 }
const UNPROVEN_AT_A_TIME = 64
/** The maximum number of concurrent requests of a peer, which limits their memory. */
const PEER_AT_A_TIME = 16
const ENDS_WITHIN_MS = 1000

export function openApi(
  { db, authenticator, keys, ...parts }: StartParts,
  { greet, pollingIdleMs, failedAttemptsMax, rate, intakes }: Options,
) {
  const challenges = new Challenges(greet)
  const unproven = new RequestLimits(rate && UNPROVEN_RATE, UNPROVEN_AT_A_TIME)
  const peers = new RequestLimits(rate, PEER_AT_A_TIME)
  const app = apiRoutes({
    ...parts,
    db,
    authenticator,
    logs: new MeshLogs(db, keys),
    tokens: new Tokens({ db, authenticator, challenges }),
    challenges,
    inboxes: new Inboxes(parts.driver, parts.queue, pollingIdleMs),
    groups: new GroupRosters(db),
    sent: new SentMessages({ db, driver: parts.driver, failedAttemptsMax }),
    unproven,
    intakes,
    peers,
  })
  return {
    app,
    ended: async (): Promise<void> => {
      const deadline = performance.now() + ENDS_WITHIN_MS
      while (!(peers.isIdle && unproven.isIdle) && performance.now() < deadline) await Bun.sleep(10)
    },
  }
}

const ALL = [...routes.unprovenRoutes, ...routes.peerRoutes, ...routes.chunkRoutes]
const PATHS = ALL.map(({ method, path }) => ({
  method: method.toUpperCase(),
  path: new RegExp(`^${path.replace(/\{\w+\}/g, '[^/]+')}$`),
}))
const MALFORMED: Partial<Record<string, HttpCode>> = { query: 'query_malformed', param: 'not_found' }
const SILENT_SECONDS_MORE = 15

function apiRoutes(parts: ApiParts): HttpApi {
  const app: HttpApi = new OpenAPIHono<Env>({
    defaultHook: (result, c) => {
      if (result.success) return undefined
      return refuse(c, { code: MALFORMED[result.target] ?? 'body_malformed' })
    },
  })
  // A HEAD request would run as a GET, so refuse it.
  app.use('/v1/*', async (c, next) => (c.req.method === 'HEAD' ? methodNotAllowed(c) : next()))
  for (const route of routes.unprovenRoutes)
    app.on(route.method, route.getRoutingPath(), admitUnproven(parts, routes.bodyBytesMax(route)))
  for (const route of routes.peerRoutes)
    app.on(route.method, route.getRoutingPath(), admitPeers(parts, routes.bodyBytesMax(route)))
  for (const route of routes.chunkRoutes) app.on(route.method, route.getRoutingPath(), admitChunks(parts))
  addTokens(app, parts)
  addMail(app, parts)
  addGroups(app, parts)
  addProofs(app, parts)
  addMeshLog(app, parts)
  addOwnKeys(app, parts)
  addPrekeys(app, parts.db)
  addAttachments(app, parts.attachments)
  addSpaces(app, parts.spaces)
  addReplays(app, parts)
  for (const route of ALL) app.all(route.getRoutingPath(), methodNotAllowed)
  let document: ReturnType<typeof openApiDocument> | undefined // built late, because that takes 40 ms
  app.get(DOCUMENT_PATH, (c) => {
    document ??= openApiDocument()
    return c.json(document)
  })
  app.onError((error, c) => {
    if (error instanceof HTTPException) return refuse(c, { code: 'body_malformed' })
    if (error instanceof OperatingError) return refuse(c, { code: 'try_later', retryAfterMs: 1000 })
    parts.log.error('http.fault', errorFields(error))
    return refuse(c, { code: 'internal' })
  })
  return app
}

function addTokens(app: HttpApi, { challenges, tokens }: ApiParts): void {
  app.openapi(routes.challenge, (c) => c.json(encodeFields(challenges.ask()), 200))
  app.openapi(routes.token, async (c) => {
    const { connectionId, ttlSeconds, ...signed } = c.req.valid('json')
    const decoded = decodeFields('auth', { ...signed, capabilities: [], credit: 0 })
    if (!decoded.ok) return refuse(c, { code: 'body_malformed' })
    const request = { connectionId: Buffer.from(connectionId, 'base64url'), auth: decoded.frame, ttlSeconds }
    const issued = await tokens.issue(request, c.env.authority)
    if (isRefused(issued)) return refuse(c, issued)
    return c.json({ ...issued, proof: Buffer.from(issued.proof).toString('base64url') }, 200)
  })
  app.openapi(routes.revoke, async (c) => {
    await tokens.revoke(c.req.header('authorization'))
    return c.body(null, 204)
  })
}

/** The maximum size of the envelopes and bodies in one list of waiting deliveries. */
const WAITING_CONTENT_BYTES_MAX = 512 * 1024

function waitingJson({ priority, envelope, body, ...facts }: WaitingDelivery) {
  const text = (bytes: Uint8Array | null) => bytes && Buffer.from(bytes).toString('base64url')
  return { ...facts, priority: PRIORITIES[priority]!, envelope: text(envelope), body: text(body) }
}

function addMail(app: HttpApi, { db, driver, inboxes, queue, sent }: ApiParts): void {
  const sendFor = (holder: TokenHolder, sending: Sending) =>
    sendOnce(driver, { ...holder, isRevoked: false, sessionEpoch: 0, consent: null }, sending)
  app.openapi(routes.send, async (c) => {
    const sending = readEnvelopes(c.req.valid('json').envelopes)
    if (!sending) return refuse(c, { code: 'body_malformed' })
    return c.json({ results: await sendFor(c.var.holder, sending) }, 200)
  })
  app.openapi(routes.broadcast, async (c) => {
    const sending = readBroadcast(c.req.valid('json'))
    if (!sending) return refuse(c, { code: 'body_malformed' })
    return c.json({ results: await sendFor(c.var.holder, sending) }, 200)
  })
  app.openapi(routes.inbox, async (c) => {
    const { waitSeconds, max, takeover } = c.req.valid('query')
    c.env.staysSilent(waitSeconds + SILENT_SECONDS_MORE)
    const poll = { max, waitMs: waitSeconds * 1000, takesOver: takeover === 'true', signal: c.req.raw.signal }
    const result = await inboxes.poll(c.var.holder, poll)
    return isRefused(result) ? refuse(c, result) : c.json(pollResultJson(result), 200)
  })
  app.openapi(routes.waiting, async (c) => {
    const { holder } = c.var
    const query = { limit: c.req.valid('query').limit, contentBytesMax: WAITING_CONTENT_BYTES_MAX }
    const [waiting, total] = await Promise.all([listWaiting(db, holder, query), countWaiting(db, holder)])
    return c.json({ total, waiting: waiting.map(waitingJson) }, 200)
  })
  app.openapi(routes.settle, async (c) => {
    const frames = settlingOf(c.req.valid('json'))
    if (!frames) return refuse(c, { code: 'body_malformed' })
    const refused = await inboxes.settle(c.var.holder, frames)
    return refused ? refuse(c, refused) : c.body(null, 204)
  })
  app.openapi(routes.sent, async (c) => {
    const ids = c.req.valid('json').envelopeIds as EnvelopeId[]
    return c.json({ messages: await sent.find(c.var.holder, ids) }, 200)
  })
  app.openapi(routes.lookup, async (c) => {
    const peers = c.req.valid('json').peers as PeerKey[]
    const bindings = await queue.findBindings(c.var.holder.meshId, peers)
    const known = new Set(bindings.map(({ peer }) => peer))
    const unknown = peers.filter((peer) => !known.has(peer))
    const { ref: _, ...directory } = encodeFields({ type: 'directory', ref: 0, bindings, unknown })
    return c.json(directory, 200)
  })
}

function addGroups(app: HttpApi, { groups }: ApiParts): void {
  app.openapi(routes.groups, async (c) => {
    const after = c.req.valid('query').after as GroupId
    return c.json(await groups.listOf(c.var.holder, after), 200)
  })
  app.openapi(routes.rosters, async (c) => {
    const asked = c.req.valid('json').groups as GroupId[]
    return c.json(await groups.lookup(c.var.holder.meshId, asked), 200)
  })
}

function settlingOf({ settle, retry, reject, extend }: z.output<typeof routes.Settle>): Settling[] | null {
  const decoded = [
    settle.length > 0 ? [decodeFields('settle', { ids: settle })] : [],
    retry.length > 0 ? [decodeFields('retry', { items: retry })] : [],
    reject.length > 0 ? [decodeFields('reject', { items: reject })] : [],
    extend !== undefined ? [decodeFields('extend', extend)] : [],
  ].flat()
  const frames = decoded.flatMap((one) => (one.ok ? [one.frame] : []))
  return frames.length === decoded.length ? frames : null
}

function admitUnproven({ unproven }: ApiParts, bytesMax: number): MiddlewareHandler<Env> {
  return async (c, next) => {
    const { ip, chargeUnproven, oweUnproven } = c.env
    const refused = unproven.begin(ip)
    if (refused) return refuse(c, refused)
    try {
      const body = await boundBody(c, { bytesMax, charge: chargeUnproven, owe: oweUnproven })
      if (typeof body !== 'number') return refuse(c, body)
      return await next()
    } finally {
      unproven.done(ip)
    }
  }
}

function admitPeers({ tokens, peers, intakes }: ApiParts, bytesMax: number): MiddlewareHandler<Env> {
  return async (c, next) => {
    const holder = await tokens.holderOf(c.req.header('authorization'))
    if (isRefused(holder)) return refuse(c, holder)
    const [name, share] = [nameOf(holder), shareNameOf(holder)]
    const refused = peers.begin(name, share)
    if (refused) return refuse(c, refused)
    c.set('holder', holder)
    try {
      const intake = intakes?.of(share)
      const body = await boundBody(c, {
        bytesMax,
        charge: (bytes) => intake?.ask(bytes) ?? 0,
        owe: (bytes) => intake?.parse(bytes),
      })
      if (typeof body !== 'number') return refuse(c, body)
      await next()
      if (body > 0 && c.res.status === 400) intake?.refuse(body)
      return undefined
    } finally {
      peers.done(name)
    }
  }
}

/** Chunks have separate limits. */
function admitChunks({ tokens }: ApiParts): MiddlewareHandler<Env> {
  return async (c, next) => {
    const holder = await tokens.holderOf(c.req.header('authorization'))
    if (isRefused(holder)) return refuse(c, holder)
    c.set('holder', holder)
    return next()
  }
}

function methodNotAllowed(c: Context): Response {
  const methods = PATHS.filter(({ path }) => path.test(c.req.path)).map(({ method }) => method)
  return c.json({ code: 'method_not_allowed' }, 405, { Allow: methods.join(', ') })
}
