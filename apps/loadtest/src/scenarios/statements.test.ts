import { expect, test } from 'vitest'
import { statementChecks, timesOf } from './statements.ts'

const SCRAPE = `# TYPE sealpost_commit_seconds histogram
sealpost_commit_seconds_bucket{le="0.005"} 10
sealpost_commit_seconds_bucket{le="0.05"} 96
sealpost_commit_seconds_bucket{le="2.5"} 99
sealpost_commit_seconds_bucket{le="+Inf"} 100
sealpost_commit_seconds_sum 3.1
sealpost_claim_seconds_bucket{le="0.005"} 1
sealpost_claim_seconds_bucket{le="+Inf"} 4
`

test('p95 of a histogram is the bound of its bucket', () => {
  expect(timesOf(SCRAPE, 'sealpost_commit_seconds')).toEqual({ count: 100, p95: 50 })
  expect(timesOf(SCRAPE, 'sealpost_claim_seconds')).toEqual({ count: 4, p95: 60_000 })
  expect(timesOf(SCRAPE, 'sealpost_other_seconds')).toEqual({ count: 0, p95: 0 })
})

test('statements that take too long are told', () => {
  const checks = statementChecks({ commits: 300, commitMsP95: 50, claims: 200, claimMsP95: 60_000 })
  expect(checks.map(({ isMet }) => isMet)).toEqual([true, false])
  const few = statementChecks({ commits: 300, commitMsP95: 50, claims: 199, claimMsP95: 60_000 })
  expect(few.map(({ isJudged = true }) => isJudged)).toEqual([true, false])
  expect(statementChecks(null)).toEqual([])
})
