/** Defines the admin API's requests and responses, from which its OpenAPI document is generated. */
import { createRoute, OpenAPIHono, type RouteConfig, z } from '@hono/zod-openapi'
import type { Counters } from '@sealpost/core'
import type { Sample } from '@sealpost/operator'
import * as shapes from '@sealpost/operator'
import type { Millis } from '@sealpost/std'
import { body, hex, json, refusalsFrom, security } from '../http/json-schema.ts'
import { type Distribution, type Metrics, residentBytes, type Timing } from '../telemetry/metrics.ts'

export const ADMIN_PATH = '/admin/v1'

export const adminRefusals = {
  body_malformed: { status: 400, meaning: 'the body does not match the schema of this request' },
  query_malformed: { status: 400, meaning: 'the path or the query does not match the schema of this request' },
  token_invalid: { status: 401, meaning: 'the admin token is missing, unknown, expired or revoked' },
  scope_missing: { status: 403, meaning: 'the token is read-only, for another mesh, or for one mesh only' },
  origin_not_allowed: { status: 403, meaning: 'the request comes from a page of another origin' },
  database_forbids: {
    status: 403,
    meaning: "the broker's database role lacks the privilege: set `ADMIN_DATABASE_URL`",
  },
  not_found: { status: 404, meaning: 'no such path, mesh or peer' },
  method_not_allowed: { status: 405, meaning: 'this method is not allowed; `Allow` lists the allowed methods' },
  too_many_requests: { status: 429, meaning: 'too many concurrent requests from operators' },
  internal: { status: 500, meaning: 'an internal error in the broker' },
  try_later: { status: 503, meaning: "the database can't process the request now" },
} as const satisfies Record<string, { status: number; meaning: string }>

export type AdminCode = keyof typeof adminRefusals

const number = (max: number) =>
  z
    .string()
    .regex(/^\d{1,16}$/)
    .transform(Number)
    .pipe(z.int().min(0).max(max))
const limit = (usual: number, max: number) => number(max).pipe(z.int().min(1)).default(usual).openapi({ type: 'integer', minimum: 1, maximum: max, default: usual }) // biome-ignore format: one thing

// Uses `meta`, because schemas created before `@hono/zod-openapi` was loaded lack `openapi`.
const named = <T extends z.ZodType>(name: string, schema: T): T => schema.meta({ id: name })
const Refusal = z
  .object({ code: z.enum(Object.keys(adminRefusals) as AdminCode[]), meaning: z.string() })
  .openapi('Refusal')

const refusals = (...codes: AdminCode[]) =>
  refusalsFrom(adminRefusals, Refusal, [...codes, 'token_invalid', 'scope_missing', 'origin_not_allowed', 'database_forbids', 'too_many_requests', 'internal', 'try_later']) // biome-ignore format: one thing

const inMesh = z.object({ meshId: hex(16) })
const ok = <T extends z.ZodType>(name: string, schema: T, description: string, ...codes: AdminCode[]) => ({
  200: json(named(name, schema), description),
  ...refusals(...codes),
})

type Described = Pick<RouteConfig, 'request' | 'responses'>
const get = <P extends string, R extends Described>(path: P, summary: string, described: R) =>
  createRoute({ method: 'get', path: `${ADMIN_PATH}${path}` as const, summary, security, ...described })
const post = <P extends string, R extends Described>(path: P, summary: string, described: R) =>
  createRoute({ method: 'post', path: `${ADMIN_PATH}${path}` as const, summary, security, ...described })

export const me = get('/me', 'Get the rights of your token', {
  responses: ok('Me', shapes.Me, 'Its name, its scope and its mesh.'),
})
export const shards = get('/shards', 'List the brokers on this database', {
  responses: ok('Shards', shapes.Shards, 'Includes brokers that stopped within the last day.'),
})
export const overview = get('/overview', 'Get whether messages flow, and if not, where and why', {
  responses: ok('Overview', shapes.Overview, 'The current state.'),
})
export const history = get('/history', 'Get the samples of the last half hour', {
  responses: ok('History', shapes.SampleHistory, 'Oldest first, from the start of the broker at the earliest.'),
})
export const live = get('/live', 'Stream the overview every two seconds, as server-sent events', {
  responses: {
    200: {
      description: '`event: overview`, with an overview as its data.',
      content: { 'text/event-stream': { schema: z.string() } },
    },
    ...refusals(),
  },
})
export const database = get('/database', 'Get the causes of a slow database', {
  responses: ok('Database', shapes.DatabaseReport, "From the server's statistics, at most five seconds old."),
})
export const meshes = get('/meshes', 'List meshes, those that need attention first', {
  request: {
    query: z.strictObject({
      after: hex(16).optional(),
      limit: limit(50, 200),
      order: z.enum(['need', 'id']).default('need'),
    }),
  },
  responses: ok('MeshPage', shapes.MeshPage, 'Meshes that are behind, then those with dead letters, then those that wait longest; the others ordered by id. Only `order=id` lists each mesh exactly once over several pages, because the other order can change between pages.', 'query_malformed'), // biome-ignore format: one thing
})
export const mesh = get('/meshes/{meshId}', 'Get one mesh', {
  request: { params: inMesh },
  responses: ok('Mesh', shapes.MeshReport, 'Its message flow.', 'query_malformed', 'not_found'),
})
export const peers = get('/meshes/{meshId}/peers', 'List the peers of a mesh, ordered by key', {
  request: { params: inMesh, query: z.strictObject({ after: hex(32).optional(), limit: limit(50, 200) }) },
  responses: ok('PeerPage', shapes.PeerPage, 'One page, including revoked peers, devices and pools.', 'query_malformed'), // biome-ignore format: one thing
})
export const waiting = get('/meshes/{meshId}/waiting', 'List the peers with the most waiting deliveries', {
  request: { params: inMesh, query: z.strictObject({ limit: limit(50, 200) }) },
  responses: ok('PeerPage', shapes.PeerPage, 'Most first, as of the last scan of the queue.', 'query_malformed'), // biome-ignore format: one thing
})
export const groups = get('/meshes/{meshId}/groups', 'List the groups and pools of a mesh', {
  request: { params: inMesh },
  responses: ok('Groups', shapes.GroupList, 'At most 500 of each.', 'query_malformed'),
})
export const invites = get('/meshes/{meshId}/invites', 'List the invites of a mesh that were used or revoked', {
  request: { params: inMesh },
  responses: ok('Invites', shapes.Invites, 'At most 500. The broker does not know unused invites.', 'query_malformed'), // biome-ignore format: one thing
})
export const kept = get('/meshes/{meshId}/kept', 'Get the stored state, history and files of a mesh', {
  request: { params: inMesh },
  responses: ok('Kept', shapes.StorageReport, 'Sizes and ages of values, history, snapshots and files; at most 500 spaces, the largest first.', 'query_malformed'), // biome-ignore format: one thing
})
export const quotas = get('/meshes/{meshId}/quotas', 'Get the use of each quota of a mesh', {
  request: { params: inMesh },
  responses: ok('Quotas', shapes.QuotaList, "Usage, limit and largest consumer. Counts the rows of the mesh: don't poll it frequently.", 'query_malformed', 'not_found'), // biome-ignore format: one thing
})
export const revokePeer = post('/meshes/{meshId}/peers/{peerKey}/revoke', 'Revoke a member permanently', {
  request: { params: z.object({ meshId: hex(16), peerKey: hex(32) }) },
  responses: ok('Revoked', shapes.Revoked, 'The member and its devices are revoked, and their connections have ended.', 'query_malformed', 'not_found'), // biome-ignore format: one thing
})
export const revokeInvite = post('/meshes/{meshId}/invites/{inviteId}/revoke', 'Revoke an invite, used or not', {
  request: { params: z.object({ meshId: hex(16), inviteId: hex(16) }) },
  responses: { 204: { description: 'The invite is no longer valid.' }, ...refusals('query_malformed', 'not_found') },
})
export const deadLetters = get('/dead-letters', 'List deliveries that left their queue unsettled, latest first', {
  request: {
    query: z.strictObject({
      meshId: hex(16).optional(),
      recipient: hex(32).optional(),
      reason: z.enum(['expired', 'strikes', 'rejected']).optional(),
      olderThanSeconds: number(2 ** 31 - 1).optional(),
      limit: limit(100, 1000),
    }),
  },
  responses: ok(
    'DeadLetters',
    shapes.DeadLetters,
    'Sender, recipient, time and reason, without content.',
    'query_malformed',
  ),
})
export const preparedSends = get('/prepared-sends', 'List the messages that applications stored with sealpost.send', {
  request: {
    query: z.strictObject({
      meshId: hex(16).optional(),
      status: shapes.PreparedSendReport.shape.status.optional(),
      limit: limit(100, 1000),
    }),
  },
  responses: ok('PreparedSends', shapes.PreparedSends, 'Latest first, without content, for a day after the decision. Without `status`, all except the stored ones.', 'query_malformed'), // biome-ignore format: one thing
})
export const redrive = post('/dead-letters/redrive', 'Redrive dead letters to the end of their queues', {
  request: { body: body(named('Redrive', shapes.Redrive)) },
  responses: ok('Redriven', shapes.RedriveReport, 'The number of redriven dead letters, and the reason for each one that was not redriven.', 'body_malformed'), // biome-ignore format: one thing
})
export const purge = post('/dead-letters/purge', 'Delete dead letters permanently', {
  request: { body: body(named('Purge', shapes.Purge)) },
  responses: ok('Purged', shapes.Purged, 'The number of deleted dead letters.', 'body_malformed'),
})
export const audit = get('/audit', 'List changes by operators, latest first', {
  request: {
    query: z.strictObject({
      meshId: hex(16).optional(),
      before: number(Number.MAX_SAFE_INTEGER).optional(),
      limit: limit(100, 1000),
    }),
  },
  responses: ok('Audit', shapes.Audit, 'Only the owner of the database can delete an entry.', 'query_malformed'), // biome-ignore format: one thing
})

export const readRoutes = [me, shards, overview, history, live, database, meshes, mesh, peers, waiting, groups, invites, kept, quotas, deadLetters, preparedSends, audit] // biome-ignore format: one thing
export const changeRoutes = [revokePeer, revokeInvite, redrive, purge]
export const adminApiRoutes = [...readRoutes, ...changeRoutes]

export const ADMIN_DOCUMENT_PATH = `${ADMIN_PATH}/openapi.json`

export function adminDocument() {
  const described = new OpenAPIHono()
  const registry = described.openAPIRegistry
  registry.registerComponent('securitySchemes', 'bearer', { type: 'http', scheme: 'bearer' })
  for (const route of adminApiRoutes) registry.registerPath(route)
  return described.getOpenAPI31Document({
    openapi: '3.1.0',
    info: {
      title: 'Sealpost admin API',
      version: '1',
      description:
        'Served on the private port of a broker. Authenticate with a token of `sealpost admin token create`.',
    },
  })
}

export const adminDocumentText = (): string => `${JSON.stringify(adminDocument(), null, 2)}\n`

export const SAMPLE_EVERY_MS = 2000
const SAMPLES_MAX = 900

interface Parts {
  readonly metrics: Metrics
  readonly counters: () => Readonly<Counters>
  readonly gauges: () => Pick<Sample, 'sessions' | 'depth' | 'oldestAgeMs'>
}

interface Reading {
  readonly atMs: Millis
  readonly counters: Readonly<Counters>
  readonly moved: number
  readonly timings: Metrics['distributions']
}

/** Takes a sample every two seconds, and keeps half an hour of them in memory. */
export class BrokerSamples {
  readonly samples: Sample[] = []
  private readonly parts: Parts
  private readonly listeners = new Set<(sample: Sample) => void>()
  private readonly timer: ReturnType<typeof setInterval>
  private before: Reading | null = null

  constructor(parts: Parts) {
    this.parts = parts
    this.look()
    this.timer = setInterval(() => this.look(), SAMPLE_EVERY_MS)
    this.timer.unref()
  }

  get latest(): Sample {
    return this.samples.at(-1) ?? { ...NOTHING_YET, ...this.parts.gauges(), atMs: Date.now(), memoryBytes: 0 }
  }

  listen(listener: (sample: Sample) => void): () => void {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  stop(): void {
    clearInterval(this.timer)
  }

  private look(): void {
    const { metrics, counters, gauges } = this.parts
    const timings = metrics.distributions
    const reading = { atMs: performance.now(), counters: { ...counters() }, moved: metrics.movedCount, timings }
    const sample = { ...between(this.before, reading), ...gauges(), atMs: Date.now(), memoryBytes: residentBytes() } // biome-ignore format: one thing
    this.before = reading
    this.samples.push(sample)
    if (this.samples.length > SAMPLES_MAX) this.samples.shift()
    for (const listener of this.listeners) listener(sample)
  }
}

type Between = Omit<Sample, 'atMs' | 'sessions' | 'depth' | 'oldestAgeMs' | 'memoryBytes'>

function between(before: Reading | null, after: Reading): Between {
  const seconds = before ? (after.atMs - before.atMs) / 1000 : 1
  const rate = (name: keyof Counters) => round((after.counters[name] - (before?.counters[name] ?? 0)) / seconds)
  const ms = (timing: Timing, share: number) => {
    const value = quantile(before?.timings[timing] ?? null, after.timings[timing], share)
    return value === null ? null : round(1000 * value)
  }
  return {
    acceptedPerSecond: rate('accepted'),
    pushedPerSecond: rate('pushed'),
    settledPerSecond: rate('settled'),
    refusedPerSecond: rate('nacked'),
    lostPerSecond: round((after.moved - (before?.moved ?? 0)) / seconds),
    ackP50Ms: ms('ack', 0.5),
    ackP95Ms: ms('ack', 0.95),
    ackP99Ms: ms('ack', 0.99),
    pushP50Ms: ms('push', 0.5),
    pushP95Ms: ms('push', 0.95),
    pushP99Ms: ms('push', 0.99),
    commitP99Ms: ms('commit', 0.99),
  }
}

const NOTHING_YET: Between = {
  acceptedPerSecond: 0,
  pushedPerSecond: 0,
  settledPerSecond: 0,
  refusedPerSecond: 0,
  lostPerSecond: 0,
  ackP50Ms: null,
  ackP95Ms: null,
  ackP99Ms: null,
  pushP50Ms: null,
  pushP95Ms: null,
  pushP99Ms: null,
  commitP99Ms: null,
}

const round = (value: number): number => Math.round(value * 100) / 100

/**
 * Returns the percentile `share` of the values counted between `before` and `after`, linearly interpolated like
 * Prometheus. For the last bucket, returns its lower bound; null if nothing was counted.
 */
export function quantile(before: Distribution | null, after: Distribution, share: number): number | null {
  const counts = after.counts.map((count, i) => count - (before?.counts[i] ?? 0))
  const total = counts.at(-1) ?? 0
  if (total <= 0) return null
  const rank = share * total
  const i = counts.findIndex((count) => count >= rank)
  const [upper, lower] = [after.bounds[i]!, i === 0 ? 0 : after.bounds[i - 1]!]
  if (!Number.isFinite(upper)) return lower
  const below = i === 0 ? 0 : counts[i - 1]!
  return lower + ((upper - lower) * (rank - below)) / (counts[i]! - below)
}
