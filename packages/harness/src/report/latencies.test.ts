import { expect, test } from 'vitest'
import { Latencies } from './latencies.ts'

test('a latency is counted in the first bin that it fits, from the fastest to the slowest', () => {
  const latencies = new Latencies()
  for (const ms of [0.004, 1, 1.2, 1.5, 1.6, 9, 999, 1001]) latencies.note(ms)
  const bins = latencies.bins
  expect(bins.filter(([, count]) => count > 0).map(([upTo, count]) => [Number(upTo.toFixed(3)), count])).toEqual([
    [0.01, 1],
    [1, 1],
    [1.5, 2],
    [2, 1],
    [10, 1],
    [1000, 1],
    [1500, 1],
  ])
  expect(bins.map(([upTo]) => upTo)).toEqual(bins.map(([upTo]) => upTo).toSorted((a, b) => a - b))
  expect(bins.reduce((sum, [, count]) => sum + count, 0)).toBe(latencies.count)
  expect(new Latencies().bins).toEqual([])
})
