/** The requests of operators: what each takes and answers. The OpenAPI document is made from these. */
import { createRoute, z } from '@hono/zod-openapi'
import * as shapes from '@sealpost/operator'
import { type AdminCode, type AdminStatus, adminRefusals } from './refusals.ts'

export const ADMIN_PATH = '/admin/v1'

const hex = (bytes: number) => z.string().regex(new RegExp(`^[0-9a-f]{${2 * bytes}}$`))
const number = (max: number) =>
  z
    .string()
    .regex(/^\d{1,16}$/)
    .transform(Number)
    .pipe(z.int().min(0).max(max))
const limit = (usual: number, max: number) => number(max).pipe(z.int().min(1)).default(usual).openapi({ type: 'integer', minimum: 1, maximum: max, default: usual }) // biome-ignore format: one thing

const named = <T extends z.ZodType>(name: string, schema: T): T => schema.openapi(name)
const json = <T extends z.ZodType>(schema: T, description: string) => ({
  description,
  content: { 'application/json': { schema } },
})
const body = <T extends z.ZodType>(schema: T) => ({
  required: true,
  content: { 'application/json': { schema } },
})

const Refusal = z
  .object({ code: z.enum(Object.keys(adminRefusals) as AdminCode[]), meaning: z.string() })
  .openapi('Refusal')

/** Typed as if every request could be refused in every way: the gate stands before all of them. */
type Refusals = Record<Exclude<AdminStatus, 405>, ReturnType<typeof json<typeof Refusal>>>
function refusals(...codes: AdminCode[]): Refusals {
  const all: AdminCode[] = [...codes, 'token_invalid', 'scope_missing', 'origin_not_allowed', 'database_forbids', 'too_many_requests', 'internal', 'try_later'] // biome-ignore format: one thing
  const statuses = [...new Set(all.map((code) => adminRefusals[code].status))].sort()
  const meanings = (status: AdminStatus) =>
    all.filter((code) => adminRefusals[code].status === status).map((code) => `\`${code}\`: ${adminRefusals[code].meaning}.`) // biome-ignore format: one thing
  return Object.fromEntries(statuses.map((status) => [status, json(Refusal, meanings(status).join(' '))])) as Refusals
}

const security = [{ bearer: [] }]
const inMesh = z.object({ meshId: hex(16) })
const ok = <T extends z.ZodType>(name: string, schema: T, description: string, ...codes: AdminCode[]) => ({
  200: json(named(name, schema), description),
  ...refusals(...codes),
})

export const me = createRoute({
  method: 'get',
  path: '/admin/v1/me',
  summary: 'See what your token may',
  security,
  responses: ok('Me', shapes.Me, 'Its name, its scope and its mesh.'),
})
export const shards = createRoute({
  method: 'get',
  path: '/admin/v1/shards',
  summary: 'List the brokers on this database',
  security,
  responses: ok('Shards', shapes.Shards, 'Also those that are gone, for a day.'),
})
export const overview = createRoute({
  method: 'get',
  path: '/admin/v1/overview',
  summary: 'See whether mail flows, and if not, where and why',
  security,
  responses: ok('Overview', shapes.Overview, 'As of this moment.'),
})
export const history = createRoute({
  method: 'get',
  path: '/admin/v1/history',
  summary: 'See the last half hour',
  security,
  responses: ok('History', shapes.History, 'Oldest first; it begins with the broker.'),
})
export const live = createRoute({
  method: 'get',
  path: '/admin/v1/live',
  summary: 'Be told every two seconds, as server-sent events',
  security,
  responses: {
    200: {
      description: '`event: overview`, with an overview as its data.',
      content: { 'text/event-stream': { schema: z.string() } },
    },
    ...refusals(),
  },
})
export const database = createRoute({
  method: 'get',
  path: '/admin/v1/database',
  summary: 'See what slows the database down',
  security,
  responses: ok('Database', shapes.Database, 'From the statistics of the server, at most five seconds old.'),
})
export const meshes = createRoute({
  method: 'get',
  path: '/admin/v1/meshes',
  summary: 'List meshes, those that need somebody first',
  security,
  request: {
    query: z.strictObject({
      after: hex(16).optional(),
      limit: limit(50, 200),
      order: z.enum(['need', 'id']).default('need'),
    }),
  },
  responses: ok('MeshPage', shapes.MeshPage, 'Mail that is behind, then what was given up, then what waits longest; the others by their ids. A walk over all of them misses none by `order=id` alone: need changes meanwhile.', 'query_malformed'), // biome-ignore format: one thing
})
export const mesh = createRoute({
  method: 'get',
  path: '/admin/v1/meshes/{meshId}',
  summary: 'See one mesh',
  security,
  request: { params: inMesh },
  responses: ok('Mesh', shapes.Mesh, 'How its mail flows.', 'query_malformed', 'not_found'),
})
export const peers = createRoute({
  method: 'get',
  path: '/admin/v1/meshes/{meshId}/peers',
  summary: 'List the peers of a mesh by their keys',
  security,
  request: { params: inMesh, query: z.strictObject({ after: hex(32).optional(), limit: limit(50, 200) }) },
  responses: ok('PeerPage', shapes.PeerPage, 'A page of them, with revoked ones, devices and pools.', 'query_malformed'), // biome-ignore format: one thing
})
export const waiting = createRoute({
  method: 'get',
  path: '/admin/v1/meshes/{meshId}/waiting',
  summary: 'List the peers for whom most waits',
  security,
  request: { params: inMesh, query: z.strictObject({ limit: limit(50, 200) }) },
  responses: ok('PeerPage', shapes.PeerPage, 'The most first; as of the last walk through the queue.', 'query_malformed'), // biome-ignore format: one thing
})
export const groups = createRoute({
  method: 'get',
  path: '/admin/v1/meshes/{meshId}/groups',
  summary: 'List the groups and pools of a mesh',
  security,
  request: { params: inMesh },
  responses: ok('Groups', shapes.Groups, 'At most 500 of each.', 'query_malformed'),
})
export const invites = createRoute({
  method: 'get',
  path: '/admin/v1/meshes/{meshId}/invites',
  summary: 'List the invites of a mesh that were used or revoked',
  security,
  request: { params: inMesh },
  responses: ok('Invites', shapes.Invites, 'At most 500; one that nobody used is known to nobody here.', 'query_malformed'), // biome-ignore format: one thing
})
export const kept = createRoute({
  method: 'get',
  path: '/admin/v1/meshes/{meshId}/kept',
  summary: 'See what is kept of a mesh beside its mail',
  security,
  request: { params: inMesh },
  responses: ok('Kept', shapes.Kept, 'Sizes and ages of values, history, snapshots and files; at most 500 spaces, the largest first.', 'query_malformed'), // biome-ignore format: one thing
})
export const revokePeer = createRoute({
  method: 'post',
  path: '/admin/v1/meshes/{meshId}/peers/{peerKey}/revoke',
  summary: 'End a membership for good',
  security,
  request: { params: z.object({ meshId: hex(16), peerKey: hex(32) }) },
  responses: ok('Revoked', shapes.Revoked, 'It and its devices are members no more, and their sessions have ended.', 'query_malformed', 'not_found'), // biome-ignore format: one thing
})
export const revokeInvite = createRoute({
  method: 'post',
  path: '/admin/v1/meshes/{meshId}/invites/{inviteId}/revoke',
  summary: 'End an invite, used or not',
  security,
  request: { params: z.object({ meshId: hex(16), inviteId: hex(16) }) },
  responses: { 204: { description: 'It lets nobody in any more.' }, ...refusals('query_malformed', 'not_found') },
})
export const deadLetters = createRoute({
  method: 'get',
  path: '/admin/v1/dead-letters',
  summary: 'List deliveries that left their queue unsettled, the latest first',
  security,
  request: {
    query: z.strictObject({
      meshId: hex(16).optional(),
      recipient: hex(32).optional(),
      reason: z.enum(['expired', 'strikes', 'rejected']).optional(),
      olderThanSeconds: number(2 ** 31 - 1).optional(),
      limit: limit(100, 1000),
    }),
  },
  responses: ok('DeadLetters', shapes.DeadLetters, 'Between whom, when and why; never what.', 'query_malformed'),
})
export const redrive = createRoute({
  method: 'post',
  path: '/admin/v1/dead-letters/redrive',
  summary: 'Put dead letters back at the end of their queues',
  security,
  request: { body: body(named('Redrive', shapes.Redrive)) },
  responses: ok('Redriven', shapes.Redriven, 'How many; those left have no envelope or no recipient any more.', 'body_malformed'), // biome-ignore format: one thing
})
export const purge = createRoute({
  method: 'post',
  path: '/admin/v1/dead-letters/purge',
  summary: 'Throw dead letters away for good',
  security,
  request: { body: body(named('Purge', shapes.Purge)) },
  responses: ok('Purged', shapes.Purged, 'How many went.', 'body_malformed'),
})
export const audit = createRoute({
  method: 'get',
  path: '/admin/v1/audit',
  summary: 'See what operators changed, the latest first',
  security,
  request: {
    query: z.strictObject({
      meshId: hex(16).optional(),
      before: number(Number.MAX_SAFE_INTEGER).optional(),
      limit: limit(100, 1000),
    }),
  },
  responses: ok('Audit', shapes.Audit, 'Nobody but the owner of the database can take an entry back.', 'query_malformed'), // biome-ignore format: one thing
})

export const readRoutes = [me, shards, overview, history, live, database, meshes, mesh, peers, waiting, groups, invites, kept, deadLetters, audit] // biome-ignore format: one thing
export const changeRoutes = [revokePeer, revokeInvite, redrive, purge]
export const adminApiRoutes = [...readRoutes, ...changeRoutes]
