/**
 * Serves the directory of prekeys (docs/adr/0018-ratchets.md): a peer publishes its signed prekey and one-time prekeys,
 * and other peers claim them.
 */
import { createRoute, z } from '@hono/zod-openapi'
import { readPrekeyStatement } from '@sealpost/identity/ratchet'
import type { Database } from '@sealpost/pg'
import { fromBase64url, type PeerKey, toBase64url } from '@sealpost/std'
import { claimPrekey, ONE_TIME_PREKEYS_MAX, type PrekeyClaim, publishPrekeys } from '@sealpost/store'
import { body, hex, json, security } from '../json-schema.ts'
import { base64url, type HttpApi, refusals } from '../route-parts.ts'
import { type HttpRefusal, isRefused, refuse, type TokenHolder } from '../tokens.ts'

/** Each claim is a statement of its own, so a request does not hold a connection for long. */
const CLAIMS_MAX = 16
/** Longer than a statement with an ML-KEM key. */
const STATEMENT_CHARS_MAX = 2048

const statement = z
  .string()
  .min(1)
  .max(STATEMENT_CHARS_MAX)
  .regex(/^[A-Za-z0-9_-]*$/)
const OneTimePrekey = z
  .strictObject({ id: z.int().min(1).max(2 ** 32 - 1), publicKey: base64url(32) }) // biome-ignore format: one thing
  .openapi('OneTimePrekey')

const Prekeys = z
  .strictObject({
    statement,
    oneTime: z.array(OneTimePrekey).max(ONE_TIME_PREKEYS_MAX),
    replaces: z.boolean().default(false),
  })
  .openapi('Prekeys')

const Claim = z
  .object({
    peer: hex(32),
    status: z.enum(['claimed', 'last_resort', 'no_prekeys', 'recipient_unknown', 'not_allowed']),
    statement: statement.optional(),
    oneTime: OneTimePrekey.optional(),
    reason: z.enum(['none_left', 'claimed_too_many']).optional().openapi({
      description:
        'why a `last_resort` has no one-time prekey: none is left, or this user has claimed too many in a day',
    }),
  })
  .openapi('PrekeyClaim')

const publish = createRoute({
  method: 'post',
  path: '/v1/prekeys',
  summary: 'Publish a signed prekey and one-time prekeys',
  security,
  request: { body: body(Prekeys) },
  responses: {
    200: json(
      z.object({ oneTimeLeft: z.int().min(0), lastResorts: z.int().min(0) }).openapi('PublishedPrekeys'),
      'The number of unclaimed one-time prekeys, and of claims of this statement that found none.',
    ),
    ...refusals(
      ...(['body_malformed', 'token_invalid', 'prekey_forged', 'prekey_expired', 'prekey_rolled_back'] as const),
      'too_many_prekeys',
    ),
  },
})

const claim = createRoute({
  method: 'post',
  path: '/v1/prekeys/claim',
  summary: 'Claim prekeys of peers; each one-time prekey is handed out once',
  security,
  request: { body: body(z.strictObject({ peers: z.array(hex(32)).min(1).max(CLAIMS_MAX) }).openapi('PrekeyQuery')) },
  responses: {
    200: json(z.object({ claims: z.array(Claim) }).openapi('PrekeyClaims'), 'One item for each peer, in order.'),
    ...refusals('body_malformed', 'token_invalid'),
  },
})

export const prekeyRoutes = [publish, claim]

export function addPrekeys(app: HttpApi, db: Database): void {
  app.openapi(publish, async (c) => {
    const outcome = await publishFor(db, c.var.holder, c.req.valid('json'))
    return isRefused(outcome) ? refuse(c, outcome) : c.json(outcome, 200)
  })
  app.openapi(claim, async (c) => {
    const claims: z.infer<typeof Claim>[] = []
    for (const peer of c.req.valid('json').peers as PeerKey[])
      claims.push({ peer, ...claimJson(await claimPrekey(db, c.var.holder, peer)) })
    return c.json({ claims }, 200)
  })
}

async function publishFor(
  db: Database,
  holder: TokenHolder,
  asked: z.output<typeof Prekeys>,
): Promise<HttpRefusal | { oneTimeLeft: number; lastResorts: number }> {
  const read = publicationOf(asked)
  if (!read) return { code: 'body_malformed' }
  const verdict = readPrekeyStatement(read.statement, { ...holder, nowMs: Date.now() })
  if (!verdict.ok) return verdict
  const { issuedAtMs } = verdict.statement
  const outcome = await publishPrekeys(db, holder, { ...read, issuedAtMs, replaces: asked.replaces })
  if (outcome.status !== 'done') return { code: outcome.status }
  return { oneTimeLeft: outcome.oneTimeLeft, lastResorts: outcome.lastResorts }
}

/** Returns null for bytes that are not canonical, and for an id that occurs twice. */
function publicationOf({ statement, oneTime }: z.output<typeof Prekeys>) {
  try {
    if (new Set(oneTime.map(({ id }) => id)).size < oneTime.length) return null
    return {
      statement: fromBase64url(statement),
      oneTime: oneTime.map(({ id, publicKey }) => ({ id, publicKey: fromBase64url(publicKey) })),
    }
  } catch {
    return null // the last character has invalid bits
  }
}

function claimJson(found: PrekeyClaim): Omit<z.infer<typeof Claim>, 'peer'> {
  switch (found.status) {
    case 'claimed': {
      const { id, publicKey } = found.oneTime
      const oneTime = { id, publicKey: toBase64url(publicKey) }
      return { status: found.status, statement: toBase64url(found.statement), oneTime }
    }
    case 'last_resort':
      return { ...found, statement: toBase64url(found.statement) }
    default:
      return found
  }
}
