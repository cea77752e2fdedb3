/** Defines the requests of the HTTP API and their responses. The OpenAPI document is generated from them. */
import { createRoute, z } from '@hono/zod-openapi'
import { BATCH_MAX, FRAME_BYTES_MAX, LOOKUP_MAX, PRIORITIES, UNPROVEN_FRAME_BYTES_MAX } from '@sealpost/protocol'
import { attachmentRoutes, chunkRoutes } from '../../attachments/http.ts'
import { history, state } from '../../history/http-replay.ts'
import { logRoutes } from '../../mesh-log/http.ts'
import { postEntries, putGrants, spaceRoutes } from '../../spaces/http.ts'
import {
  body,
  hex,
  type JsonSchema,
  json,
  schemaOfField,
  schemaOfFrame,
  schemaOfItem,
  security,
} from '../json-schema.ts'
import { ownKeyRoutes } from '../own-keys.ts'
import { findProofsRoute, putProofsRoute } from '../proofs.ts'
import { base64url, listOf, refusals, Sent, sendSchema, wholeNumber, wire } from '../route-parts.ts'
import { TTL_SECONDS_MAX } from '../tokens.ts'
import { broadcast, groups, rosters } from './group-routes.ts'
import { prekeyRoutes } from './prekeys.ts'
import { sent } from './sent.ts'

export const WAIT_SECONDS_MAX = 30
export const POLL_MAX = 256
const POLL_USUAL = 32

function deliverySchema(): JsonSchema {
  const { terms, body } = schemaOfItem('pushBody', 'deliveries').properties
  const push = schemaOfItem('push', 'deliveries')
  return { ...push, properties: { ...push.properties, terms, body } }
}

/** Returns the schema of an envelope, with default terms. */
function envelopeSchema(): JsonSchema {
  const { required: _, ...terms } = schemaOfItem('sendWith', 'envelopes').properties.terms!
  const send = sendSchema()
  return { ...send, properties: { ...send.properties, terms } }
}

export const challenge = createRoute({
  method: 'post',
  path: '/v1/token/challenge',
  summary: 'Request a challenge, valid once and for `authWithinMs`',
  responses: { 200: json(wire(schemaOfFrame('hello')).openapi('Challenge'), 'The fields to sign.'), ...refusals() },
})

export const token = createRoute({
  method: 'post',
  path: '/v1/token',
  summary: 'Request a token with a signed challenge',
  request: {
    body: body(
      z
        .strictObject({
          version: z.int().min(0).max(0xffff),
          meshId: hex(16),
          peerKey: hex(32),
          connectionId: base64url(16),
          clientNonce: base64url(32),
          ttlSeconds: z.int().min(1).max(TTL_SECONDS_MAX),
          signature: base64url(64),
        })
        .openapi('TokenRequest'),
    ),
  },
  responses: {
    200: json(z.object({ token: z.string(), expiresAtMs: z.int(), proof: base64url(64) }).openapi('Token'), 'A token.'),
    ...refusals(
      'body_malformed',
      'version_unsupported',
      'challenge_invalid',
      'auth_failed',
      'revoked',
      'too_many_tokens',
    ),
  },
})

export const revoke = createRoute({
  method: 'delete',
  path: '/v1/token',
  summary: 'Revoke the token of this request',
  security,
  responses: { 204: { description: 'The token is no longer valid.' }, ...refusals('token_invalid') },
})

export const send = createRoute({
  method: 'post',
  path: '/v1/send',
  summary: 'Send sealed envelopes',
  security,
  request: {
    body: body(
      z
        .strictObject({
          envelopes: z.array(wire(envelopeSchema()).openapi('Envelope')).min(1).max(BATCH_MAX),
        })
        .openapi('Send'),
    ),
  },
  responses: {
    200: json(Sent, 'The result of each envelope, in the order of the request.'),
    ...refusals('body_malformed', 'token_invalid'),
  },
})

export const inbox = createRoute({
  method: 'get',
  path: '/v1/inbox',
  summary: 'Wait for deliveries',
  security,
  request: {
    query: z.strictObject({
      waitSeconds: wholeNumber(WAIT_SECONDS_MAX, 0),
      max: wholeNumber(POLL_MAX, POLL_USUAL, 1),
      takeover: z.enum(['true', 'false']).optional(),
    }),
  },
  responses: {
    200: json(
      z
        .object({
          deliveries: z.array(wire(deliverySchema()).openapi('Delivery')),
          receipts: z.array(wire(schemaOfItem('receipts', 'items')).openapi('Receipt')),
          lost: z.array(wire(schemaOfItem('recovered', 'lost')).openapi('Lost')),
        })
        .openapi('Inbox'),
      'Leased deliveries, receipts and lost deliveries. All lists are empty if nothing arrived in time.',
    ),
    ...refusals('query_malformed', 'token_invalid', 'revoked', 'session_conflict', 'superseded'),
  },
})

export const WAITING_MAX = 100

export const waiting = createRoute({
  method: 'get',
  path: '/v1/inbox/waiting',
  summary: 'List the waiting deliveries without leasing them',
  security,
  request: { query: z.strictObject({ limit: wholeNumber(WAITING_MAX, WAITING_MAX, 1) }) },
  responses: {
    200: json(
      z
        .object({
          total: z.int().min(0),
          waiting: z.array(
            z.object({
              envelopeId: hex(16),
              sender: hex(32),
              priority: z.enum(PRIORITIES),
              attempts: z.int().min(0),
              enqueuedAtMs: z.int(),
              expiresAtMs: z.int(),
              isHeld: z.boolean(),
              bytes: z.int(),
              envelope: wire(schemaOfItem('push', 'deliveries').properties.envelope!).nullable(),
              body: wire(schemaOfField('broadcast', 'body')).nullable(),
            }),
          ),
        })
        .openapi('Waiting'),
      'The first deliveries in the order in which they would be pushed, and the number of all deliveries.',
    ),
    ...refusals('query_malformed', 'token_invalid'),
  },
})

/** Decoded like the frames of these names. */
export const Settle = z
  .strictObject({
    settle: listOf(schemaOfField('settle', 'ids')),
    retry: listOf(schemaOfField('retry', 'items')),
    reject: listOf(schemaOfField('reject', 'items')),
    extend: wire(schemaOfFrame('extend')).optional(),
  })
  .openapi('Settle')

export const settle = createRoute({
  method: 'post',
  path: '/v1/settle',
  summary: 'Settle, retry, reject or extend deliveries',
  security,
  request: {
    body: body(Settle),
  },
  responses: {
    204: { description: 'All settles are committed.' },
    ...refusals('body_malformed', 'token_invalid', 'session_over'),
  },
})

export const lookup = createRoute({
  method: 'post',
  path: '/v1/lookup',
  summary: 'Look up the key bindings of peers',
  security,
  request: { body: body(z.strictObject({ peers: z.array(hex(32)).min(1).max(LOOKUP_MAX) }).openapi('Lookup')) },
  responses: {
    200: json(wire(schemaOfFrame('directory', { without: ['ref'] })).openapi('Directory'), 'The known bindings.'),
    ...refusals('body_malformed', 'token_invalid'),
  },
})

export const unprovenRoutes = [challenge, token]
export { broadcast, groups, rosters, sent }
export const peerRoutes = [
  revoke,
  send,
  broadcast,
  inbox,
  waiting,
  settle,
  lookup,
  sent,
  groups,
  rosters,
  findProofsRoute,
  putProofsRoute,
  ...logRoutes,
  ...ownKeyRoutes,
  ...prekeyRoutes,
  ...attachmentRoutes,
  ...spaceRoutes,
  state,
  history,
]
export { chunkRoutes }

type Route = (typeof unprovenRoutes | typeof peerRoutes)[number]
const LARGE_BODIES: readonly Route[] = [send, broadcast, settle, putGrants, postEntries]
const BODY_BYTES_MAX = 32 * 1024

export function bodyBytesMax(route: Route): number {
  if (unprovenRoutes.some((each) => each === route)) return UNPROVEN_FRAME_BYTES_MAX
  return LARGE_BODIES.includes(route) ? FRAME_BYTES_MAX : BODY_BYTES_MAX
}
