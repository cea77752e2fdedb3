import { expect, test } from 'vitest'
import { type ComparisonResult, type ContenderRun, comparisonRows, comparisonText } from './result.ts'

const run = (server: ContenderRun['server'], round: number, figures: Partial<ContenderRun> = {}): ContenderRun => ({
  ...{ server, round, rate: null, perSecond: 1_000, p50: 1, p99: 10, serverMicros: 50, clientMicros: 20, rssMb: 100 },
  ...{ redelivered: 0 },
  ...figures,
})

test('a ratio is the median of the ratios of each round, not the ratio of the medians', () => {
  const runs = [
    run('sealpost', 1, { p50: 2 }),
    run('redis', 1, { p50: 1 }),
    run('sealpost', 2, { p50: 30 }),
    run('redis', 2, { p50: 10 }),
    run('sealpost', 3, { p50: 8 }),
    run('redis', 3, { p50: 2 }),
  ]
  const [own, redis] = comparisonRows(runs)
  expect(own).toMatchObject({ server: 'sealpost', rate: null, medians: { p50: 8 }, ratios: null })
  expect(redis).toMatchObject({ server: 'redis', medians: { p50: 2 }, ratios: { p50: 3, perSecond: 1 } })
})

test('phases and servers are reported separately, in the order of the runs', () => {
  const runs = [null, 1_000].flatMap((rate) => [
    run('sealpost', 1, { rate, perSecond: 500 }),
    run('redis', 1, { rate, perSecond: rate ?? 250 }),
    run('nats', 1, { rate, perSecond: 2_000 }),
  ])
  const rows = comparisonRows(runs).map(({ rate, server, ratios }) => [rate, server, ratios?.perSecond ?? null])
  expect(rows).toEqual([
    [null, 'sealpost', null],
    [null, 'redis', 2],
    [null, 'nats', 0.25],
    [1_000, 'sealpost', null],
    [1_000, 'redis', 0.5],
    [1_000, 'nats', 0.25],
  ])
})

test('there is no ratio to a figure that was too small to measure', () => {
  const rows = comparisonRows([run('sealpost', 1), run('redis', 1, { serverMicros: 0 })])
  expect(rows[1]?.ratios).toMatchObject({ serverMicros: null, clientMicros: 1 })
})

test('the text has medians, ratios, versions and redeliveries', () => {
  const runs = [run('sealpost', 1), run('redis', 1, { p99: 4, redelivered: 3 })]
  const shape = {
    peers: 100,
    messagesPerPeer: 1_000,
    seconds: 10,
    window: 64,
    payloadBytes: 200,
    rounds: 1,
    clients: 2,
  }
  const result: ComparisonResult = { ...shape, versions: { redis: 'Redis 7.0.15' }, runs }
  const text = comparisonText(result, { isColored: false })
  expect(text).toMatch(/ burst\n.* server RSS MB/)
  expect(text).toMatch(/Redis Streams, appendfsync always +1,000 +1\.00 +4\.00 +50\.0 +20\.0 +100\n/)
  expect(text).toContain('Sealpost / other, median of 1 round')
  expect(text).toMatch(/burst, Redis Streams, appendfsync always +1\.00 +1\.00 +2\.50 +1\.00 +1\.00 +1\.00\n/)
  expect(text).toContain('one send per turn')
  expect(text).toContain('Redis 7.0.15')
  expect(text).toContain('burst, round 1: 3 redeliveries')
})
