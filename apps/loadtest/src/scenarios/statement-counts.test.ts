import { expect, test } from 'vitest'
import { countedChecks, difference } from './statement-counts.ts'

const of = (calls: number, meanMs: number, deviationMs: number, maxMs = 1_000) => ({
  ...{ text: 'select 1', calls, meanMs, deviationMs, maxMs },
})

test('what was counted before a run is taken off mean and deviation', () => {
  const [before, during] = [
    [1, 3],
    [10, 14, 18],
  ]
  const all = [...before!, ...during!]
  const statementOf = (times: readonly number[]) => {
    const mean = times.reduce((a, b) => a + b, 0) / times.length
    const variance = times.reduce((sum, time) => sum + (time - mean) ** 2, 0) / times.length
    return of(times.length, mean, Math.sqrt(variance))
  }
  const { calls, meanMs, deviationMs } = difference(statementOf(all), statementOf(before!))
  expect(calls).toBe(3)
  expect(meanMs).toBeCloseTo(14)
  expect(deviationMs).toBeCloseTo(statementOf(during!).deviationMs)
  expect(difference(of(5, 2, 1), of(5, 2, 1)).calls).toBe(0)
})

test('p95 is met where mean and deviation prove it, unproven between, and not met by the mean', () => {
  const told = (...given: ReturnType<typeof of>[]) => countedChecks(given).map(({ isMet, sentence }) => [isMet, sentence.includes('unproven')]) // biome-ignore format: one thing
  expect(told(of(300, 10, 20))).toEqual([[true, false]])
  expect(told(of(300, 10, 30))).toEqual([[true, true]])
  expect(told(of(300, 10, 30, 80))).toEqual([[true, false]])
  expect(told(of(300, 101, 0))).toEqual([[false, true]])
  expect(countedChecks(null)).toEqual([])
  expect(countedChecks([of(199, 101, 0)])).toEqual([])
  expect(told({ ...of(300, 900, 0), text: 'copy (select 1) to stdout' }, of(300, 10, 20))).toEqual([[true, false]])
})
