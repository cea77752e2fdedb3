import { createRoute, z } from '@hono/zod-openapi'
import { body, hex, json, security } from '../http/json-schema.ts'
import { refusals } from '../http/route-parts.ts'

/** Boxes of one request; for a larger mesh a member sends several. */
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
  summary: 'Create a space or change its terms, by a statement that its owner signed',
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
