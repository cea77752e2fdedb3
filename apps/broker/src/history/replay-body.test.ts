import { describe, expect, test, vi } from 'vitest'
import { begun, bodyOf, type Encoding } from './replay-body.ts'

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
  return {
    body: bodyOf(parts(), { end, pace: { bytesPerSecond: 64 * 1024 * 1024, startMs: 50 }, encoding, broken }),
    facts,
  }
}

test.each([null, 'gzip'] as const)(
  'a reader that stalls and returns gets the end of its response (%s)',
  async (encoding) => {
    const { body, facts } = bodyOfMany(encoding)
    const reader = body.getReader()
    expect((await reader.read()).done).toBe(false)
    await expect.poll(() => facts.isEnded).toBe(true)
    let next = await reader.read()
    while (!next.done) next = await reader.read()
    expect(facts.end.signal.aborted).toBe(true)
  },
)

test('a reader that accepts little at a time is cut, but not for time without data', async () => {
  vi.useFakeTimers()
  try {
    const pace = { bytesPerSecond: PART.length, startMs: 5_000 }
    const end = new AbortController()
    const parts = async function* () {
      await new Promise((resolve) => setTimeout(resolve, 60_000))
      for (;;) yield PART
    }
    const body = bodyOf(parts(), { end, pace, encoding: null, broken: (error) => expect.unreachable(String(error)) })
    const reader = body.getReader()
    const first = reader.read()
    await vi.advanceTimersByTimeAsync(60_000)
    expect((await first).done).toBe(false)
    const taken: boolean[] = []
    while (taken.length < 20 && !taken.at(-1)) {
      await vi.advanceTimersByTimeAsync(2_000)
      taken.push((await reader.read()).done)
    }
    expect(taken.length).toBeGreaterThan(3)
    expect(taken.at(-1)).toBe(true)
    expect(end.signal.aborted).toBe(true)
  } finally {
    vi.useRealTimers()
  }
})

test('a reader that disconnects ends the parts', async () => {
  const { body, facts } = bodyOfMany()
  const reader = body.getReader()
  await reader.read()
  await reader.cancel()
  await expect.poll(() => facts.isEnded).toBe(true)
  await Bun.sleep(100) // longer than the allowed stall
})

describe('parts end before anything of them was read when', () => {
  const pace = { bytesPerSecond: 1024, startMs: 60_000 }
  const broken = (error: unknown) => expect.unreachable(String(error))

  async function begunParts() {
    const facts = { isEnded: false }
    const parts = (async function* () {
      try {
        for (;;) yield PART
      } finally {
        facts.isEnded = true
      }
    })()
    return { parts: await begun(parts), facts }
  }

  test('the body is cancelled', async () => {
    const { parts, facts } = await begunParts()
    await bodyOf(parts, { end: new AbortController(), pace, encoding: null, broken }).cancel()
    await expect.poll(() => facts.isEnded).toBe(true)
  })

  test('the reader disconnects', async () => {
    const { parts, facts } = await begunParts()
    const end = new AbortController()
    bodyOf(parts, { end, pace, encoding: 'gzip', broken })
    end.abort()
    await expect.poll(() => facts.isEnded).toBe(true)
  })

  test('the reader disconnected before the body existed', async () => {
    const { parts, facts } = await begunParts()
    const end = new AbortController()
    end.abort()
    bodyOf(parts, { end, pace, encoding: null, broken })
    await expect.poll(() => facts.isEnded).toBe(true)
  })

  test('nobody reads the body', async () => {
    const { parts, facts } = await begunParts()
    bodyOf(parts, { end: new AbortController(), pace: { ...pace, startMs: 20 }, encoding: null, broken })
    await expect.poll(() => facts.isEnded).toBe(true)
  })
})
