import { TURN_COSTS } from '@sealpost/protocol'
import { expect, test } from 'vitest'
import { FairTurns } from './fair-turns.ts'

/** What a claim of `limit` takes when all of `backlog` waits without end: the rule of `CLAIM`. */
function claimOf(turns: FairTurns, limit: number, backlog: readonly number[]): { priority: number }[] {
  const next = [...turns.now]
  return Array.from({ length: limit }, () => {
    const ahead = backlog.map((priority) => ({ priority, turn: next[priority]! + TURN_COSTS[priority]! }))
    const { priority, turn } = ahead.reduce((a, b) => (b.turn < a.turn ? b : a))
    next[priority] = turn
    return { priority }
  })
}

function servedOver(rounds: number, limit: number, backlog: readonly number[], turns = new FairTurns()): number[] {
  const counts = [0, 0, 0]
  for (let n = 0; n < rounds; n++) {
    const deliveries = claimOf(turns, limit, backlog)
    for (const { priority } of deliveries) counts[priority]! += 1
    turns.served(deliveries)
  }
  return counts
}

test.each([1, 2, 5, 21])('a flood of everything shares claims of %i as 16 to 4 to 1', (limit) => {
  const counts = servedOver(2100 / limit, limit, [0, 1, 2])
  const shares = counts.map((count) => count / 100)
  for (const [priority, share] of [16, 4, 1].entries()) expect(Math.abs(shares[priority]! - share)).toBeLessThan(0.5)
})

test('a flood of now never starves low, however small the window', () => {
  const turns = new FairTurns()
  for (let n = 0; n < 100; n++) expect(servedOver(40, 1, [0, 2], turns)[2]).toBeGreaterThan(0)
})

test('a priority that was silent for long saves up one delivery and no more', () => {
  const turns = new FairTurns()
  servedOver(1000, 1, [0], turns)
  expect(servedOver(1, 1, [0, 2], turns)).toEqual([0, 0, 1])
  expect(servedOver(15, 1, [0, 2], turns)).toEqual([15, 0, 0])
})
