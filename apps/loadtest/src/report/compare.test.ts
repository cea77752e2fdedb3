import { expect, test } from 'vitest'
import { compare, limitedIn } from './compare.ts'

test('figures of two runs are compared by name, and what only one has is left out', () => {
  const first = { total: 100, ackMs: { p50: 2, p99: 8 }, samples: [{ seconds: 1 }], gitSha: 'a', reconnects: 0 }
  const second = { total: 100, ackMs: { p50: 3 }, samples: [{ seconds: 1 }], gitSha: 'b', shards: [{ peers: 5 }] }
  expect(compare(first, second)).toEqual([
    { name: 'total', first: 100, second: 100 },
    { name: 'ackMs.p50', first: 2, second: 3 },
  ])
})

test('scenarios are found by their names, whatever their order', () => {
  const votes = (delivered: number) => ({
    scenario: 'votes',
    seconds: 3,
    figures: { delivered },
    checks: [{ isMet: true }],
  })
  const other = { scenario: 'roundtrip', figures: { sent: 7 } }
  expect(compare({ scenarios: [votes(40), other] }, { scenarios: [other, votes(41)] })).toEqual([
    { name: 'votes.delivered', first: 40, second: 41 },
    { name: 'roundtrip.sent', first: 7, second: 7 },
  ])
})

test('whether the load generator was the limit is told of each scenario, and of any other run', () => {
  const scenarios = [
    { scenario: 'burst', generatorWasLimit: true },
    { scenario: 'votes', generatorWasLimit: false },
  ]
  expect(limitedIn({ scenarios })).toEqual([' in burst'])
  expect(limitedIn({ loadgenWasLimit: true })).toEqual([''])
  expect(limitedIn({ sweep: [{ loadgenWasLimit: false }] })).toEqual([])
})
