/**
 * The refusals of whole requests: codes with their HTTP status, in one table. Single envelopes have the codes of a
 * `nack`.
 */
import type { CloseCode } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'
import type { Context } from 'hono'

export const httpRefusals = {
  body_malformed: { status: 400, meaning: 'the body does not match the schema of this request' },
  query_malformed: { status: 400, meaning: 'the query does not match the schema of this request' },
  chunk_malformed: { status: 400, meaning: 'the chunk has the wrong length or the wrong hash' },
  moment_in_future: { status: 400, meaning: 'the time is in the future' },
  version_unsupported: { status: 400, meaning: 'the protocol version is not one that the challenge offered' },
  token_invalid: { status: 401, meaning: 'the token is missing, unknown, expired or revoked' },
  challenge_invalid: { status: 401, meaning: 'the challenge is unknown, used or expired: request a new one' },
  auth_failed: { status: 401, meaning: 'unknown mesh, unknown key or bad signature' },
  revoked: { status: 403, meaning: 'this key was revoked' },
  not_owner: { status: 403, meaning: 'only an admin of the mesh, or the owner of the group, may define its space' },
  not_found: { status: 404, meaning: 'no such path' },
  attachment_unknown: { status: 404, meaning: 'no such attachment, or this peer may not access it' },
  recipient_unknown: { status: 404, meaning: 'no such member, or no such group with this peer as a member' },
  space_unknown: { status: 404, meaning: 'no such space, or this peer does not belong to it' },
  method_not_allowed: { status: 405, meaning: 'method not allowed; `Allow` lists the allowed ones' },
  body_too_slow: { status: 408, meaning: 'the body arrived at less than 16 KiB per second' },
  session_conflict: { status: 409, meaning: 'this key has an open socket: close it, or set `takeover`' },
  session_over: { status: 409, meaning: 'the polling connection has ended; unsettled deliveries will be redelivered' },
  superseded: { status: 409, meaning: 'the same key opened a newer connection' },
  attachment_taken: { status: 409, meaning: 'another attachment has this id' },
  attachment_differs: { status: 409, meaning: 'the hash does not match the uploaded chunks' },
  chunk_differs: { status: 409, meaning: 'a different chunk is stored at this index' },
  chunk_missing: { status: 409, meaning: 'chunks are missing' },
  body_too_large: { status: 413, meaning: 'the body exceeds the limit of this request' },
  attachment_too_large: { status: 413, meaning: "the attachment exceeds the broker's limit" },
  stale_epoch: { status: 409, meaning: 'a later epoch is stored than this request was made for' },
  before_horizon: { status: 410, meaning: 'the history does not reach back to this time, or no history is kept' },
  rate_limited: { status: 429, meaning: 'the request rate exceeds the limit' },
  too_many_requests: { status: 429, meaning: 'too many concurrent requests of this peer' },
  too_many_tokens: { status: 429, meaning: 'this peer has reached its limit of tokens: revoke one' },
  internal: { status: 500, meaning: 'an internal error of the broker' },
  restarting: { status: 503, meaning: 'the broker is shutting down; try again later' },
  replay_busy: { status: 503, meaning: 'too many replays are queued' },
  try_later: { status: 503, meaning: "the broker or its database can't process the request now" },
  quota_exceeded: {
    status: 507,
    meaning: 'this user, with all devices, has reached its limit of attachments or of their bytes',
  },
  mesh_quota_exceeded: {
    status: 507,
    meaning: 'the mesh has reached its limit of attachments or of their bytes',
  },
} as const satisfies Record<string, { status: number; meaning: string }>

export type HttpCode = keyof typeof httpRefusals

export interface HttpRefusal {
  readonly code: HttpCode
  /** Wait at least this long; set for some codes. */
  readonly retryAfterMs?: Millis
}

export const isRefused = (answer: object): answer is HttpRefusal => 'code' in answer

/** Returns the refusal of a request whose session ended with `code`. */
export function refusedBy(code: CloseCode, retryAfterMs: Millis): HttpRefusal {
  return code in httpRefusals ? { code: code as HttpCode, retryAfterMs } : { code: 'internal' }
}

export function refuse(c: Context, { code, retryAfterMs }: HttpRefusal) {
  const { status } = httpRefusals[code]
  if (status === 401) c.header('WWW-Authenticate', 'Bearer')
  if (retryAfterMs !== undefined) c.header('Retry-After', String(Math.ceil(retryAfterMs / 1000)))
  const refusal = retryAfterMs === undefined ? { code } : { code, retryAfterMs: Math.ceil(retryAfterMs) }
  return c.json(refusal, status as Exclude<typeof status, 405>)
}
