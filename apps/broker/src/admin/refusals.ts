/** The refusals of the admin API: codes with their HTTP status, in one table. */

export const adminRefusals = {
  body_malformed: { status: 400, meaning: 'the body does not match the schema of this request' },
  query_malformed: { status: 400, meaning: 'the path or the query does not match the schema of this request' },
  token_invalid: { status: 401, meaning: 'the admin token is missing, unknown, expired or revoked' },
  scope_missing: { status: 403, meaning: 'the token is read-only, for another mesh, or for one mesh only' },
  origin_not_allowed: { status: 403, meaning: 'the request comes from a page of another origin' },
  database_forbids: {
    status: 403,
    meaning: "the broker's database role lacks the privilege: set `ADMIN_DATABASE_URL`",
  },
  not_found: { status: 404, meaning: 'no such path, mesh or peer' },
  method_not_allowed: { status: 405, meaning: 'method not allowed; `Allow` lists the allowed ones' },
  too_many_requests: { status: 429, meaning: 'too many concurrent requests of operators' },
  internal: { status: 500, meaning: 'an internal error of the broker' },
  try_later: { status: 503, meaning: "the database can't process the request now" },
} as const satisfies Record<string, { status: number; meaning: string }>

export type AdminCode = keyof typeof adminRefusals
