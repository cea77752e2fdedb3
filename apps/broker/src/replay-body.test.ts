import { expect, test } from 'vitest'
import { bodyOf, type Encoding } from './replay-body.ts'

const PART = new Uint8Array(64 * 1024).fill(7)

function bodyOfMany(encoding: Encoding | null = null) {
  const end = new AbortController()
  const facts = { isEnded: false, end }
  const parts = async function* () {
    try {
      for (;;) yield PART
    } finally {
      facts.isEnded = true
    }
  }
  const broken = (error: unknown) => expect.unreachable(String(error))
  return { body: bodyOf(parts(), { end, stallMs: 50, encoding, broken }), facts }
}

test.each([null, 'gzip'] as const)('a reader that stalls, and comes back, is told the end (%s)', async (encoding) => {
  const { body, facts } = bodyOfMany(encoding)
  const reader = body.getReader()
  expect((await reader.read()).done).toBe(false)
  await expect.poll(() => facts.isEnded).toBe(true)
  let next = await reader.read()
  while (!next.done) next = await reader.read()
  expect(facts.end.signal.aborted).toBe(true)
})

test('a reader that goes ends the parts', async () => {
  const { body, facts } = bodyOfMany()
  const reader = body.getReader()
  await reader.read()
  await reader.cancel()
  await expect.poll(() => facts.isEnded).toBe(true)
  await Bun.sleep(100) // where the time of a stall is over
})
