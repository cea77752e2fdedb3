/** The requests of the admin API and their responses. The OpenAPI document is generated from them. */
import { createRoute, OpenAPIHono, type RouteConfig, z } from '@hono/zod-openapi'
import * as shapes from '@sealpost/operator'
import { body, hex, json, refusalsFrom, security } from '../http/json-schema.ts'

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
  method_not_allowed: { status: 405, meaning: 'method not allowed; `Allow` lists the allowed ones' },
  too_many_requests: { status: 429, meaning: 'too many concurrent requests of operators' },
  internal: { status: 500, meaning: 'an internal error of the broker' },
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

// `meta`, since a schema made before `@hono/zod-openapi` was loaded has no method `openapi`.
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
  responses: ok('Shards', shapes.Shards, 'Includes stopped brokers for a day.'),
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
export const database = get('/database', 'Get what slows the database down', {
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
  responses: ok('MeshPage', shapes.MeshPage, 'Meshes that are behind, then those with dead letters, then those that wait longest; the others ordered by id. Only `order=id` lists each mesh exactly once over several pages, because the need changes meanwhile.', 'query_malformed'), // biome-ignore format: one thing
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
  responses: ok('Quotas', shapes.QuotaList, "Use, limit and largest user. Counts the rows of the mesh: don't poll it frequently.", 'query_malformed', 'not_found'), // biome-ignore format: one thing
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
export const redrive = post('/dead-letters/redrive', 'Redrive dead letters to the end of their queues', {
  request: { body: body(named('Redrive', shapes.Redrive)) },
  responses: ok('Redriven', shapes.RedriveReport, 'The number of redriven dead letters, and the reason for each other one.', 'body_malformed'), // biome-ignore format: one thing
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

export const readRoutes = [me, shards, overview, history, live, database, meshes, mesh, peers, waiting, groups, invites, kept, quotas, deadLetters, audit] // biome-ignore format: one thing
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
