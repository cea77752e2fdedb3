import type { Context } from 'hono'
import { type HttpRefusal, httpRefusals } from './refusals.ts'

export function refuse(c: Context, { code, retryAfterMs }: HttpRefusal) {
  const { status } = httpRefusals[code]
  if (status === 401) c.header('WWW-Authenticate', 'Bearer')
  if (retryAfterMs !== undefined) c.header('Retry-After', String(Math.ceil(retryAfterMs / 1000)))
  const refusal = retryAfterMs === undefined ? { code } : { code, retryAfterMs: Math.ceil(retryAfterMs) }
  return c.json(refusal, status as Exclude<typeof status, 405>)
}
