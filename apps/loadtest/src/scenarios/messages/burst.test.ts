import { expect, test } from 'vitest'
import { bestSweepP99Ms } from './burst.ts'

test.each([
  [10, 1_160],
  [25, 8_710],
  [50, 2_600],
  [99, 2_600],
  [100, 4_400],
  [200, 4_400],
  [4, 1_160],
])('a burst of %i peers is compared with the better figure of the nearest smaller number: %i ms', (peers, ms) => {
  expect(bestSweepP99Ms(peers)).toBe(ms)
})
