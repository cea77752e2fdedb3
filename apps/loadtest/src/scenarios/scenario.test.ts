import { Latencies } from '@sealpost/harness/report/latencies'
import { expect, test } from 'vitest'
import { latencyCheck, percentileCheck, samplesFor, secondsFor } from './scenario.ts'

test('a percentile needs ten samples beyond it', () => {
  expect([50, 90, 95, 99, 99.9].map(samplesFor)).toEqual([20, 100, 200, 1_000, 10_000])
  expect([50, 300, 1_000, 20_000].map((perSecond) => secondsFor(99, perSecond))).toEqual([20, 4, 1, 1])
})

test('with enough samples a percentile is judged, and the check states their number', () => {
  const judged = (ms: number) => percentileCheck({ percent: 95, samples: 200, ms, maxMs: 100, of: 'requests' })
  expect(judged(99)).toEqual({
    ...{ about: 'cost', isMet: true, sentence: 'p95 of 200 requests is at most 100 ms (99.0).' },
  })
  expect([judged(100).isMet, judged(100.1).isMet]).toEqual([true, false])
})

test('with one sample too few a percentile is not judged, however slow the samples are', () => {
  const latencies = new Latencies()
  for (let i = 0; i < 999; i++) latencies.note(5_000)
  const bound = { percent: 99, maxMs: 100, of: 'frames' }
  const check = latencyCheck(latencies, bound)
  expect(check).toMatchObject({ isMet: true, isJudged: false })
  expect(check.sentence).toBe('p99 of 999 frames is not judged: this requires 1,000 samples (5,000 ms measured).')
  latencies.note(5_000)
  expect(latencyCheck(latencies, bound)).toMatchObject({ isMet: false })
})
