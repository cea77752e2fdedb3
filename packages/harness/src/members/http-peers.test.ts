import { expect, test } from 'vitest'
import { type HttpReply, withRetries } from './http-peers.ts'

async function retried(...replies: readonly HttpReply[]) {
  const count = { retries: 0 }
  let requests = 0
  const last = await withRetries(() => Promise.resolve(replies[requests++]!), count)
  return { requests, last, ...count }
}

test('a request is repeated after a temporary refusal, and any other reply is returned', async () => {
  const later = { code: 'rate_limited', retryAfterMs: 1 }
  const busy = { code: 'too_many_requests', retryAfterMs: 1 }
  expect(await retried(later, busy, {}, later)).toEqual({ requests: 3, last: {}, retries: 2 })
  const revoked = { code: 'revoked' }
  expect(await retried(later, revoked, {})).toEqual({ requests: 2, last: revoked, retries: 1 })
})

test('a wait beyond the time limit is not begun: the refusal is returned', async () => {
  const never = { code: 'try_later', retryAfterMs: 3_600_000 }
  expect(await retried(never, {})).toEqual({ requests: 1, last: never, retries: 0 })
})
