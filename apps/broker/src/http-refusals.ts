/** Why a whole request is refused: codes with their HTTP status, in one table. Single envelopes have the codes of a `nack`. */
import type { CloseCode } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'

export const httpRefusals = {
  body_malformed: { status: 400, meaning: 'the body is not what this request takes' },
  query_malformed: { status: 400, meaning: 'the query is not what this request takes' },
  version_unsupported: { status: 400, meaning: 'no protocol version that the challenge offered' },
  token_invalid: { status: 401, meaning: 'no token, or one that is unknown, over or revoked' },
  challenge_invalid: { status: 401, meaning: 'a challenge that is unknown, used or over: ask for a new one' },
  auth_failed: { status: 401, meaning: 'unknown mesh, unknown key or bad signature' },
  revoked: { status: 403, meaning: 'this key was revoked' },
  not_found: { status: 404, meaning: 'no such path' },
  method_not_allowed: { status: 405, meaning: 'not this method; `Allow` names those that are' },
  session_conflict: { status: 409, meaning: 'a socket of this key is in session: close it, or take over' },
  session_over: { status: 409, meaning: 'no polling session; what was not settled will be handed out again' },
  superseded: { status: 409, meaning: 'the same key opened a newer session' },
  rate_limited: { status: 429, meaning: 'more requests than the rate allows' },
  too_many_requests: { status: 429, meaning: 'too many requests of this peer at a time' },
  too_many_tokens: { status: 429, meaning: 'this peer has as many tokens as it may have: revoke one' },
  internal: { status: 500, meaning: 'a fault of the broker' },
  restarting: { status: 503, meaning: 'the broker goes away; come again' },
  try_later: { status: 503, meaning: 'the broker or its database can not do it now' },
} as const satisfies Record<string, { status: number; meaning: string }>

export type HttpCode = keyof typeof httpRefusals
export type HttpStatus = (typeof httpRefusals)[HttpCode]['status']

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
