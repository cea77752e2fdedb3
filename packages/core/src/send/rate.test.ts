import fc from 'fast-check'
import { expect, test } from 'vitest'
import { TokenBucket } from './rate.ts'

test('a burst passes, then the rate applies', () => {
  const bucket = new TokenBucket({ perSecond: 10, burst: 3 }, 0)
  expect([bucket.take(0), bucket.take(0), bucket.take(0)]).toEqual([0, 0, 0])
  expect(bucket.take(0)).toBe(100)
  expect(bucket.take(99)).toBeGreaterThan(0)
  expect(bucket.take(100)).toBe(0)
})

test('never lets through more than rate × time + burst, whatever the clock does', () => {
  const steps = fc.array(fc.tuple(fc.integer({ min: -50, max: 500 }), fc.integer({ min: 1, max: 5 })))
  fc.assert(
    fc.property(steps, fc.integer({ min: 1, max: 50 }), fc.integer({ min: 1, max: 20 }), (moves, perSecond, burst) => {
      const bucket = new TokenBucket({ perSecond, burst }, 0)
      let nowMs = 0
      let aheadMs = 0
      let taken = 0
      for (const [moveMs, tries] of moves) {
        nowMs += moveMs
        aheadMs += Math.max(0, moveMs)
        for (let i = 0; i < tries; i++) if (bucket.take(nowMs) === 0) taken += 1
      }
      expect(taken).toBeLessThanOrEqual(burst + (aheadMs * perSecond) / 1000 + 1e-6)
    }),
    { numRuns: 200, seed: 7 },
  )
})

test('returns the time until the next token', () => {
  const bucket = new TokenBucket({ perSecond: 3, burst: 1 }, 0)
  bucket.take(0)
  const waitMs = bucket.take(0)
  expect(bucket.take(waitMs)).toBe(0)
})
