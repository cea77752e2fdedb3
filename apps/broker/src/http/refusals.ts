/** Why a whole request is refused: codes with their HTTP status, in one table. Single envelopes have the codes of a `nack`. */
import type { CloseCode } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'

export const httpRefusals = {
  body_malformed: { status: 400, meaning: 'the body is not what this request takes' },
  query_malformed: { status: 400, meaning: 'the query is not what this request takes' },
  chunk_malformed: { status: 400, meaning: 'not as long as this chunk of the attachment is, or not of this hash' },
  moment_in_future: { status: 400, meaning: 'a moment that has not come yet' },
  version_unsupported: { status: 400, meaning: 'no protocol version that the challenge offered' },
  token_invalid: { status: 401, meaning: 'no token, or one that is unknown, over or revoked' },
  challenge_invalid: { status: 401, meaning: 'a challenge that is unknown, used or over: ask for a new one' },
  auth_failed: { status: 401, meaning: 'unknown mesh, unknown key or bad signature' },
  revoked: { status: 403, meaning: 'this key was revoked' },
  not_owner: { status: 403, meaning: 'only an admin of the mesh, or the owner of the group, says what its space is' },
  not_found: { status: 404, meaning: 'no such path' },
  attachment_unknown: { status: 404, meaning: 'no such attachment, or none that this peer may have' },
  recipient_unknown: { status: 404, meaning: 'no such member, or no such group that this peer belongs to' },
  space_unknown: { status: 404, meaning: 'no such space, or none that this peer belongs to' },
  method_not_allowed: { status: 405, meaning: 'not this method; `Allow` names those that are' },
  body_too_slow: { status: 408, meaning: 'the body came more slowly than 16 KiB a second' },
  session_conflict: { status: 409, meaning: 'a socket of this key is in session: close it, or take over' },
  session_over: { status: 409, meaning: 'no polling session; what was not settled will be handed out again' },
  superseded: { status: 409, meaning: 'the same key opened a newer session' },
  attachment_taken: { status: 409, meaning: 'another attachment has this id' },
  attachment_differs: { status: 409, meaning: 'the hash is not that of the chunks that are there' },
  chunk_differs: { status: 409, meaning: 'another chunk is in this place' },
  chunk_missing: { status: 409, meaning: 'not every chunk is there that this takes' },
  body_too_large: { status: 413, meaning: 'longer than the body of this request may be' },
  attachment_too_large: { status: 413, meaning: 'larger than an attachment may be here' },
  stale_epoch: { status: 409, meaning: 'a later epoch stands than this was made for' },
  before_horizon: { status: 410, meaning: 'nothing is kept from so long ago, or nothing at all' },
  rate_limited: { status: 429, meaning: 'more requests than the rate allows' },
  too_many_requests: { status: 429, meaning: 'too many requests of this peer at a time' },
  too_many_tokens: { status: 429, meaning: 'this peer has as many tokens as it may have: revoke one' },
  internal: { status: 500, meaning: 'a fault of the broker' },
  restarting: { status: 503, meaning: 'the broker goes away; come again' },
  replay_busy: { status: 503, meaning: 'too many long answers wait for their turn' },
  try_later: { status: 503, meaning: 'the broker or its database can not do it now' },
  quota_exceeded: {
    status: 507,
    meaning: 'this person has as many attachments, or as many bytes of them, as it may have on all its devices',
  },
  mesh_quota_exceeded: {
    status: 507,
    meaning: 'the mesh has as many attachments, or as many bytes of them, as it may have',
  },
} as const satisfies Record<string, { status: number; meaning: string }>

export type HttpCode = keyof typeof httpRefusals

export interface Refused {
  readonly code: HttpCode
  /** Not before; known for some. */
  readonly retryAfterMs?: Millis
}

export const isRefused = (answer: object): answer is Refused => 'code' in answer

/** What ended a session, as a request that waited for it is told. */
export function refusedBy(code: CloseCode, retryAfterMs: Millis): Refused {
  return code in httpRefusals ? { code: code as HttpCode, retryAfterMs } : { code: 'internal' }
}
