/**
 * Serves the keys of a member that does not use a socket, and what its devices do for it: extends or replaces a key binding, names
 * heirs, and recovers a lost identity key (docs/adr/0016).
 */
import { createRoute, z } from '@hono/zod-openapi'
import { checkKeyBinding, type HeirStatement, RECOVERY_BYTES_MAX, readHeirs, readRecovery } from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import type { HintOf } from '@sealpost/protocol/hints'
import { BOX_EPOCH_MAX, type NewRecovery, putHeirs, recoverIdentity } from '@sealpost/store'
import type { Authenticator } from '../directory/authenticator.ts'
import type { MemberSettings } from '../directory/requests.ts'
import { body, json, security } from './json-schema.ts'
import { base64url, type HttpApi, refusals } from './route-parts.ts'
import { type HttpRefusal, refuse, type TokenHolder } from './tokens.ts'

const Binding = {
  boxKey: base64url(32),
  boxEpoch: z.int().min(1).max(BOX_EPOCH_MAX),
  notAfterMs: z.int().min(0),
  signature: base64url(64),
}
const statement = z
  .string()
  .min(1)
  .max(Math.ceil((RECOVERY_BYTES_MAX * 4) / 3))
  .regex(/^[A-Za-z0-9_-]*$/)

const putBinding = createRoute({
  method: 'put',
  path: '/v1/binding',
  summary: "Extend this peer's key binding, or replace its box key",
  security,
  request: { body: body(z.strictObject(Binding).openapi('Binding')) },
  responses: {
    204: { description: 'The binding is stored.' },
    ...refusals('body_malformed', 'token_invalid', 'binding_refused', 'stale_epoch'),
  },
})

const putHeirsRoute = createRoute({
  method: 'put',
  path: '/v1/heirs',
  summary: 'Name the devices that may certify a successor of this identity key; cancels a pending recovery',
  security,
  request: { body: body(z.strictObject({ statement }).openapi('Heirs')) },
  responses: {
    204: { description: 'The statement is stored.' },
    ...refusals('body_malformed', 'token_invalid', 'device_unknown', 'stale_epoch'),
  },
})

const recover = createRoute({
  method: 'post',
  path: '/v1/recoveries',
  summary: 'As an heir, certify a successor of the lost key of the user; repeat it after seven days',
  security,
  request: { body: body(z.strictObject({ statement, ...Binding }).openapi('Recovery')) },
  responses: {
    200: json(
      z
        .object({
          state: z.enum(['pending', 'done']),
          waitMs: z.int().openapi({ description: 'the time until the recovery can take effect' }),
        })
        .openapi('RecoveryState'),
      'The recovery is published, or has taken effect.',
    ),
    ...refusals(
      ...(['body_malformed', 'token_invalid', 'not_heir', 'recovery_cancelled', 'recovery_pending'] as const),
      ...(['key_taken', 'stale_epoch', 'binding_refused'] as const),
    ),
  },
})

export const ownKeyRoutes = [putBinding, putHeirsRoute, recover] as const

export type KeyHint = HintOf<'staleKey'> | HintOf<'revoked'>

export interface OwnKeyParts {
  readonly db: Database
  readonly authenticator: Authenticator
  readonly settings: MemberSettings
  /** Makes every shard forget what it knows of the key. */
  readonly keyChanged: (hint: KeyHint) => void
}

export function addOwnKeys(app: HttpApi, { db, authenticator, settings, keyChanged }: OwnKeyParts): void {
  app.openapi(putBinding, async (c) => {
    const { holder } = c.var
    const outcome = await settings.bind(holder, { type: 'bind', ref: 0, ...bindingOf(c.req.valid('json')) })
    if (outcome === null) return refuse(c, BUSY)
    if (outcome !== 'done') return refuse(c, { code: outcome === 'bad_binding' ? 'binding_refused' : 'stale_epoch' })
    keyChanged({ type: 'staleKey', meshId: holder.meshId, peer: holder.peerKey })
    return c.body(null, 204)
  })
  app.openapi(putHeirsRoute, async (c) => {
    const { holder } = c.var
    const bytes = bytesOf(c.req.valid('json').statement)
    const read = await authenticator.inTurn(() => ({ heirs: readHeirs(bytes) }))
    if (read === null) return refuse(c, BUSY)
    if (!isOwn(read.heirs, holder)) return refuse(c, { code: 'body_malformed' })
    const { user, epoch, heirs } = read.heirs
    const outcome = await putHeirs(db, holder, { user, epoch, devices: heirs.map(({ device }) => device), bytes })
    return outcome === 'done' ? c.body(null, 204) : refuse(c, { code: outcome })
  })
  app.openapi(recover, async (c) => {
    const { holder } = c.var
    const { statement: text, ...binding } = c.req.valid('json')
    const checked = await authenticator.inTurn(() => checkRecovery(holder, bytesOf(text), bindingOf(binding)))
    if (checked === null) return refuse(c, BUSY)
    if ('code' in checked) return refuse(c, checked)
    const outcome = await recoverIdentity(db, holder, checked)
    if (outcome.status === 'pending') return c.json({ state: outcome.status, waitMs: outcome.waitMs }, 200)
    if (outcome.status !== 'done') return refuse(c, { code: outcome.status })
    keyChanged({ type: 'revoked', meshId: holder.meshId, peer: outcome.user })
    return c.json({ state: outcome.status, waitMs: 0 }, 200)
  })
}

const BUSY = { code: 'try_later', retryAfterMs: 1000 } as const

interface BindingFields {
  readonly boxKey: Uint8Array
  readonly boxEpoch: number
  readonly notAfterMs: number
  readonly signature: Uint8Array
}

const isOwn = (heirs: HeirStatement | null, { meshId, peerKey }: TokenHolder): heirs is HeirStatement =>
  heirs?.meshId === meshId && heirs.user === peerKey

/** Refuses a recovery of another mesh or heir, and a successor whose binding is not valid. */
function checkRecovery(
  { meshId, peerKey: heir }: TokenHolder,
  bytes: Uint8Array,
  fields: BindingFields,
): NewRecovery | HttpRefusal {
  const recovery = readRecovery(bytes)
  if (recovery?.meshId !== meshId) return { code: 'body_malformed' }
  if (recovery.heir.device !== heir) return { code: 'not_heir' }
  const { former, successor, heirs } = recovery
  const binding = { meshId, peerKey: successor, ...fields }
  if (checkKeyBinding(binding, { meshId, peerKey: successor, nowMs: Date.now() }) !== 'ok')
    return { code: 'binding_refused' }
  return { former, heir, heirs, bytes, binding }
}

const bindingOf = (json: {
  boxKey: string
  boxEpoch: number
  notAfterMs: number
  signature: string
}): BindingFields => ({
  ...json,
  boxKey: bytesOf(json.boxKey),
  signature: bytesOf(json.signature),
})

/** Decodes a text that the schema has checked. */
const bytesOf = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'base64url'))
