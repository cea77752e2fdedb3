import { expect, test } from 'vitest'
import { patiently, type Refusable } from './patience.ts'

async function askAll(...answers: readonly Refusable[]) {
  const putOffs = { count: 0 }
  let asked = 0
  const last = await patiently(() => Promise.resolve(answers[asked++]!), putOffs)
  return { asked, last, putOffs: putOffs.count }
}

test('who is put off asks again, and takes the first answer that is no passing refusal', async () => {
  const later = { code: 'rate_limited', retryAfterMs: 1 }
  const busy = { code: 'too_many_requests', retryAfterMs: 1 }
  expect(await askAll(later, busy, {}, later)).toEqual({ asked: 3, last: {}, putOffs: 2 })
  const revoked = { code: 'revoked' }
  expect(await askAll(later, revoked, {})).toEqual({ asked: 2, last: revoked, putOffs: 1 })
})

test('a wait that is longer than its patience ends it with the refusal', async () => {
  const never = { code: 'try_later', retryAfterMs: 3_600_000 }
  expect(await askAll(never, {})).toEqual({ asked: 1, last: never, putOffs: 0 })
})
