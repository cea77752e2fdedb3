/** Why a request of an operator is refused: codes with their HTTP status, in one table. */

export const adminRefusals = {
  body_malformed: { status: 400, meaning: 'the body is not what this request takes' },
  query_malformed: { status: 400, meaning: 'the path or the query is not what this request takes' },
  token_invalid: { status: 401, meaning: 'no admin token, or one that is unknown, over or revoked' },
  scope_missing: { status: 403, meaning: 'the token only reads, or is for another mesh, or for one mesh only' },
  origin_not_allowed: { status: 403, meaning: 'a page of another origin asks' },
  database_forbids: { status: 403, meaning: 'the account of the broker may not: set `ADMIN_DATABASE_URL`' },
  not_found: { status: 404, meaning: 'no such path, mesh or peer' },
  method_not_allowed: { status: 405, meaning: 'not this method; `Allow` names those that are' },
  too_many_requests: { status: 429, meaning: 'too many requests of operators at a time' },
  internal: { status: 500, meaning: 'a fault of the broker' },
  try_later: { status: 503, meaning: 'the database can not do it now' },
} as const satisfies Record<string, { status: number; meaning: string }>

export type AdminCode = keyof typeof adminRefusals
