/** Serves spaces over HTTP. */

import { createRoute, z } from '@hono/zod-openapi'
import type { Space } from '@sealpost/history'
import { fromBase64url, type MeshId, type Micros, type PeerKey, type SpaceId, toBase64url } from '@sealpost/std'
import { body, hex, json, security } from '../http/json-schema.ts'
import { type HttpApi, refusals } from '../http/route-parts.ts'
import { type HttpRefusal, isRefused, refuse, type TokenHolder } from '../http/tokens.ts'
import type { SpaceRequests, WriteOutcome } from './space-requests.ts'

/** The maximum number of boxes in a request. */
const GRANTS_MAX = 256
const ENTRIES_MAX = 256
export const MEMBERS_MAX = 256

const SPACE = '/v1/meshes/{mesh}/spaces/{space}'
const params = z.object({ mesh: hex(16), space: hex(16) })
const keyEpoch = z
  .int()
  .min(0)
  .max(2 ** 31 - 1)
const bytes = z.string().regex(/^[A-Za-z0-9_-]*$/)
const instant = z.string().openapi({ format: 'date-time', description: 'UTC, with six digits after the seconds' })

const Member = z.object({ peer: hex(32), keyEpoch }).openapi('SpaceMember')

export const putSpace = createRoute({
  method: 'put',
  path: SPACE,
  summary: 'Create a space or change its terms, with a statement that its owner signed',
  security,
  request: { params, body: body(z.strictObject({ statement: bytes }).openapi('PutSpace')) },
  responses: {
    200: json(z.object({ epoch: z.int() }).openapi('PutSpaceAnswer'), 'The stored epoch.'),
    ...refusals('body_malformed', 'token_invalid', 'not_owner', 'stale_epoch'),
  },
})

export const getSpace = createRoute({
  method: 'get',
  path: SPACE,
  summary: "Get a space, this peer's unconfirmed grants, and the members without the newest key",
  security,
  request: { params },
  responses: {
    200: json(
      z
        .object({
          statement: bytes,
          keyEpoch,
          lastSeq: z.int(),
          lastAt: instant.nullable(),
          horizon: instant.nullable(),
          entries: z.int(),
          entryBytes: z.int(),
          historyBytes: z.int(),
          memberCount: z.int(),
          departed: z.int(),
          lacking: z.array(Member).max(MEMBERS_MAX),
          grants: z.array(z.object({ keyEpoch, granter: hex(32), box: bytes }).openapi('Grant')),
        })
        .openapi('Space'),
      'The space.',
    ),
    ...refusals('token_invalid', 'space_unknown'),
  },
})

export const spaceMembers = createRoute({
  method: 'get',
  path: `${SPACE}/members`,
  summary: 'List the members of a space, and the newest key that each was granted',
  security,
  request: { params, query: z.strictObject({ after: hex(32).default('0'.repeat(64)) }) },
  responses: {
    200: json(
      z.object({ members: z.array(Member).max(MEMBERS_MAX), isLast: z.boolean() }).openapi('SpaceMembers'),
      'The members after `after`, ordered by key.',
    ),
    ...refusals('query_malformed', 'token_invalid', 'space_unknown'),
  },
})

export const putGrants = createRoute({
  method: 'post',
  path: `${SPACE}/grants`,
  summary: 'Grant members the current key, sealed for each, or rotate to the next one',
  security,
  request: {
    params,
    body: body(
      z
        .strictObject({
          keyEpoch: keyEpoch.min(1),
          expects: keyEpoch,
          grants: z.array(z.strictObject({ peer: hex(32), box: bytes })).max(GRANTS_MAX),
        })
        .refine((order) => order.keyEpoch - order.expects === 1 || order.keyEpoch === order.expects)
        .openapi('PutGrants'),
    ),
  },
  responses: {
    200: json(z.object({ keyEpoch }).openapi('PutGrantsAnswer'), 'The current epoch.'),
    ...refusals('body_malformed', 'token_invalid', 'space_unknown', 'stale_epoch'),
  },
})

export const endGrant = createRoute({
  method: 'delete',
  path: `${SPACE}/grants/{keyEpoch}`,
  summary: 'Confirm the key of this epoch, or report that this peer could not open it',
  security,
  request: {
    params: params.extend({
      keyEpoch: z
        .string()
        .regex(/^\d{1,10}$/)
        .transform(Number)
        .pipe(keyEpoch.min(1))
        .openapi({ type: 'integer' }),
    }),
    query: z.strictObject({ replace: z.enum(['true', 'false']).optional() }),
  },
  responses: {
    204: {
      description:
        'The grant is not returned again. With `replace`, the next member that grants keys creates another one.',
    },
    ...refusals('query_malformed', 'token_invalid', 'space_unknown'),
  },
})

const Outcome = z
  .object({
    outcome: z.enum([
      'done',
      'conflict',
      'malformed',
      'too_large',
      'stale_key_epoch',
      'quota',
      'busy',
      'unknown_space',
    ]),
    seq: z.int().optional(),
    at: instant.optional(),
    entry: bytes.nullable().optional().openapi({ description: 'In a conflict, the current entry, if any' }),
  })
  .openapi('EntryOutcome')

export const postEntries = createRoute({
  method: 'post',
  path: `${SPACE}/entries`,
  summary: 'Write entries, each with the next revision',
  security,
  request: {
    params,
    body: body(z.strictObject({ entries: z.array(bytes).min(1).max(ENTRIES_MAX) }).openapi('PostEntries')),
  },
  responses: {
    200: json(
      z.object({ outcomes: z.array(Outcome) }).openapi('EntryOutcomes'),
      'The result of each, in the order of the request.',
    ),
    ...refusals('body_malformed', 'token_invalid', 'space_unknown'),
  },
})

export const spaceRoutes = [putSpace, getSpace, spaceMembers, putGrants, endGrant, postEntries]

export function addSpaces(app: HttpApi, requests: SpaceRequests): void {
  app.openapi(putSpace, async (c) => {
    const statement = bytesOf(c.req.valid('json').statement)
    const put = statement ? await requests.put(c.var.holder, placeOf(c.req.valid('param')), statement) : MALFORMED
    return isRefused(put) ? refuse(c, put) : c.json(put, 200)
  })
  app.openapi(getSpace, async (c) => {
    const space = await requests.open(c.var.holder, placeOf(c.req.valid('param')))
    return isRefused(space) ? refuse(c, space) : c.json(await spaceJson(requests, c.var.holder, space), 200)
  })
  app.openapi(spaceMembers, async (c) => {
    const space = await requests.open(c.var.holder, placeOf(c.req.valid('param')))
    if (isRefused(space)) return refuse(c, space)
    return c.json(await requests.members(space, c.req.valid('query').after as PeerKey, MEMBERS_MAX), 200)
  })
  addGrants(app, requests)
  app.openapi(postEntries, async (c) => {
    const entries = allBytesOf(c.req.valid('json').entries)
    if (!entries) return refuse(c, MALFORMED)
    const space = await requests.open(c.var.holder, placeOf(c.req.valid('param')))
    if (isRefused(space)) return refuse(c, space)
    const outcomes = await requests.write(c.var.holder, space, entries)
    return isRefused(outcomes) ? refuse(c, outcomes) : c.json({ outcomes: outcomes.map(outcomeJson) }, 200)
  })
}

function addGrants(app: HttpApi, requests: SpaceRequests): void {
  app.openapi(putGrants, async (c) => {
    const { grants, ...epochs } = c.req.valid('json')
    const boxes = allBytesOf(grants.map(({ box }) => box))
    if (!boxes) return refuse(c, MALFORMED)
    const space = await requests.open(c.var.holder, placeOf(c.req.valid('param')))
    if (isRefused(space)) return refuse(c, space)
    const sealed = grants.map(({ peer }, i) => ({ peer: peer as PeerKey, box: boxes[i]! }))
    const stood = await requests.grant(c.var.holder, space, { ...epochs, grants: sealed })
    if (stood === epochs.expects) return c.json({ keyEpoch: epochs.keyEpoch }, 200)
    return c.json({ code: 'stale_epoch' as const, keyEpoch: stood }, 409)
  })
  app.openapi(endGrant, async (c) => {
    const { keyEpoch, ...named } = c.req.valid('param')
    const space = await requests.open(c.var.holder, placeOf(named))
    if (isRefused(space)) return refuse(c, space)
    const key = { ...placeOf(named), keyEpoch }
    if (c.req.valid('query').replace === 'true') await requests.grants.discard(c.var.holder, key)
    else await requests.grants.markFetched(c.var.holder, key)
    return c.body(null, 204)
  })
}

const MALFORMED: HttpRefusal = { code: 'body_malformed' }

const placeOf = ({ mesh, space }: { mesh: string; space: string }) => ({
  meshId: mesh as MeshId,
  spaceId: space as SpaceId,
})

async function spaceJson(requests: SpaceRequests, holder: TokenHolder, space: Space) {
  const [needs, grants] = await Promise.all([
    requests.spaces.findGrantNeeds(space, MEMBERS_MAX),
    requests.grants.list(holder, space),
  ])
  const { keyEpoch, lastSeq, entries, entryBytes, historyBytes } = space
  return {
    statement: toBase64url(space.statement),
    ...{ keyEpoch, lastSeq, entries, entryBytes, historyBytes },
    lastAt: space.lastAt === null ? null : instantOf(space.lastAt),
    horizon: horizonOf(space),
    memberCount: needs.memberCount,
    departed: needs.departed,
    lacking: [...needs.lacking],
    grants: grants.map(({ box, ...grant }) => ({ ...grant, box: toBase64url(box) })),
  }
}

/** Returns the beginning of what can be read. */
function horizonOf({ now, keptSince, keepSeconds }: Space): string | null {
  return keptSince === null ? null : instantOf(Math.max(keptSince, now - keepSeconds * 1e6))
}

const instantOf = (at: Micros): string => {
  const millis = Math.floor(at / 1000)
  return `${new Date(millis).toISOString().slice(0, -1)}${String(at - millis * 1000).padStart(3, '0')}Z`
}

function outcomeJson(outcome: WriteOutcome) {
  switch (outcome.status) {
    case 'done':
      return { outcome: outcome.status, seq: outcome.seq, at: instantOf(outcome.at) }
    case 'conflict':
      return { outcome: outcome.status, entry: outcome.standing && toBase64url(outcome.standing) }
    case 'away':
      return { outcome: 'busy' as const }
    default:
      return { outcome: outcome.status }
  }
}

function bytesOf(text: string): Uint8Array | null {
  try {
    return fromBase64url(text)
  } catch {
    return null
  }
}

function allBytesOf(texts: readonly string[]): Uint8Array[] | null {
  const all = texts.flatMap((text) => bytesOf(text) ?? [])
  return all.length === texts.length ? all : null
}
