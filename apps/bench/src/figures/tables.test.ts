import type { LoadResult } from '@sealpost/loadtest/run/result'
import { expect, test } from 'vitest'
import type { Measured, Results, RunResult } from './results.ts'
import { comparedTable } from './tables.ts'

const of = (p50: number, p99: number) => ({ p50, p95: p99, p99, max: p99 })
const measured = (result: RunResult): Measured => ({ command: '', exitCode: 0, machine: {} as never, result })
const faults = { lost: 0, timedOut: 0, outOfOrder: 0, duplicates: 0 }
const burst: RunResult = {
  ...{ peers: 100, total: 100_000, delivered: 100_000, wallMs: 2_000, messagesPerSecond: 50_000, brokerRssMbPeak: 140 },
  ...{ callToPushMs: of(450, 1_100), e2eMs: of(48, 131), baselineMessagesPerSecond: 80_000, baselineRatio: 0.625 },
  ...faults,
}
const sweep = [10, 25, 50, 100].map((peers) => ({ peers, callToPushMs: of(peers, peers * 2) }) as LoadResult)

const rowOf = (results: Results, name: string) =>
  comparedTable(results)
    ?.split('\n')
    .find((row) => row.includes(name))

test('published, rerun and own figures have separate columns, and all latencies count from the call', () => {
  const results = { burst: { burst: measured(burst) } }
  expect(rowOf(results, 'delivered')).toContain('| 88,778 in 900 s | 100,000 in 74.5 s, 1,372/s | **100,000 in 2.00 s')
  expect(rowOf(results, 'call → push')).toContain('| 12.9 / 23.0 s | 21.6 / 34.8 s | **0.45 / 1.10 s** |')
  expect(rowOf(results, 'send → push')).toContain('| – | – | **48.0 / 131 ms** |')
  expect(rowOf(results, 'relay')).toContain('80,000/s; storage reduces throughput by 38 %')
})

test('the latencies of small bursts count from the call too', () => {
  const results = { burst: { burst: measured(burst) }, small: { small: measured({ sweep }) } }
  expect(rowOf(results, '10, 50, 100 peers × 100')).toContain(
    '| 1.16 / 9.90 / 4.66 s | 1.30 / 2.60 / 4.40 s | **20.0 / 100 / 200 ms** |',
  )
})

test('a run that includes the key exchange is quoted, and omitted until it was measured', () => {
  const cold = measured({ ...burst, wallMs: 6_006, messagesPerSecond: 1_665 })
  const results = { burst: { burst: measured(burst) } }
  expect(rowOf(results, '--cold')).toBeUndefined()
  expect(rowOf({ ...results, cold: { cold } }, '--cold')).toContain('**6.01 s, 1,665/s**')
})

test('without a burst there is no table', () => {
  expect(comparedTable({})).toBeNull()
})
