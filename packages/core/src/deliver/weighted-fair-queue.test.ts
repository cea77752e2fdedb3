import { PRIORITY_COSTS } from '@sealpost/protocol'
import { expect, test } from 'vitest'
import { WeightedFairQueue } from './weighted-fair-queue.ts'

/** What a claim of `limit` takes when all of `backlog` waits without end: the rule of `CLAIM`. */
function claimOf(times: WeightedFairQueue, limit: number, backlog: readonly number[]): { priority: number }[] {
  const next = [...times.now]
  return Array.from({ length: limit }, () => {
    const ahead = backlog.map((priority) => ({ priority, turn: next[priority]! + PRIORITY_COSTS[priority]! }))
    const { priority, turn } = ahead.reduce((a, b) => (b.turn < a.turn ? b : a))
    next[priority] = turn
    return { priority }
  })
}

function servedOver(
  claims: number,
  limit: number,
  backlog: readonly number[],
  times = new WeightedFairQueue(),
): number[] {
  const counts = [0, 0, 0]
  for (let n = 0; n < claims; n++) {
    const deliveries = claimOf(times, limit, backlog)
    for (const { priority } of deliveries) counts[priority]! += 1
    times.served(deliveries)
  }
  return counts
}

test.each([1, 2, 5, 21])('a flood of everything shares claims of %i as 16 to 4 to 1', (limit) => {
  const counts = servedOver(2100 / limit, limit, [0, 1, 2])
  const shares = counts.map((count) => count / 100)
  for (const [priority, share] of [16, 4, 1].entries()) expect(Math.abs(shares[priority]! - share)).toBeLessThan(0.5)
})

test('a flood of now never starves low, however small the window', () => {
  const times = new WeightedFairQueue()
  for (let n = 0; n < 100; n++) expect(servedOver(40, 1, [0, 2], times)[2]).toBeGreaterThan(0)
})

test('a priority that was silent for long saves up one delivery and no more', () => {
  const times = new WeightedFairQueue()
  servedOver(1000, 1, [0], times)
  expect(servedOver(1, 1, [0, 2], times)).toEqual([0, 0, 1])
  expect(servedOver(15, 1, [0, 2], times)).toEqual([15, 0, 0])
})
