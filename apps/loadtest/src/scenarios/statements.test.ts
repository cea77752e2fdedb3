import { expect, test } from 'vitest'
import { countedChecks, difference, statementChecks, timesOf } from './statements.ts'

const of = (calls: number, meanMs: number, deviationMs: number, maxMs = 1_000) => ({
  ...{ text: 'select 1', calls, meanMs, deviationMs, maxMs },
})

test('counts from before a run are subtracted from mean and deviation', () => {
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

test('p95 is met if mean and deviation prove it, not met if the mean exceeds it, and otherwise unproven', () => {
  const outcomes = (...given: ReturnType<typeof of>[]) => countedChecks(given).map(({ isMet, sentence }) => [isMet, sentence.includes('unproven')]) // biome-ignore format: one thing
  expect(outcomes(of(300, 10, 20))).toEqual([[true, false]])
  expect(outcomes(of(300, 10, 30))).toEqual([[true, true]])
  expect(outcomes(of(300, 10, 30, 80))).toEqual([[true, false]])
  expect(outcomes(of(300, 101, 0))).toEqual([[false, true]])
  expect(countedChecks(null)).toEqual([])
  expect(countedChecks([of(199, 101, 0)])).toEqual([])
  expect(outcomes({ ...of(300, 900, 0), text: 'copy (select 1) to stdout' }, of(300, 10, 20))).toEqual([[true, false]])
})

const SCRAPE = `# TYPE sealpost_commit_seconds histogram
sealpost_commit_seconds_bucket{le="0.005"} 10
sealpost_commit_seconds_bucket{le="0.05"} 96
sealpost_commit_seconds_bucket{le="2.5"} 99
sealpost_commit_seconds_bucket{le="+Inf"} 100
sealpost_commit_seconds_sum 3.1
sealpost_claim_seconds_bucket{le="0.005"} 1
sealpost_claim_seconds_bucket{le="+Inf"} 4
`

test('the p95 of a histogram is the upper bound of its bucket', () => {
  expect(timesOf(SCRAPE, 'sealpost_commit_seconds')).toEqual({ count: 100, p95: 50 })
  expect(timesOf(SCRAPE, 'sealpost_claim_seconds')).toEqual({ count: 4, p95: 60_000 })
  expect(timesOf(SCRAPE, 'sealpost_other_seconds')).toEqual({ count: 0, p95: 0 })
})

test('slow statements fail their check', () => {
  const checks = statementChecks({ commits: 300, commitMsP95: 50, claims: 200, claimMsP95: 60_000 })
  expect(checks.map(({ isMet }) => isMet)).toEqual([true, false])
  const few = statementChecks({ commits: 300, commitMsP95: 50, claims: 199, claimMsP95: 60_000 })
  expect(few.map(({ isJudged = true }) => isJudged)).toEqual([true, false])
  expect(statementChecks(null)).toEqual([])
})
