/** Compares Sealpost with other servers, as a user would. Redis is Debian's `redis-server`. */
import { expect, test } from 'vitest'
import type { ComparisonResult } from './rivals/result.ts'
import { LoadTestWorld, programsOf } from './test/testing-run.ts'

const world = new LoadTestWorld()
const isMissing = !Bun.which('redis-server') && process.env.CI !== 'true'

if (isMissing) test.skip('the comparison with Redis requires an installed redis-server')
else
  test('Redis stores and delivers the same messages as Sealpost', async () => {
    const args = ['4', '10', '--against', 'redis', '--seconds', '1', '--json', world.resultFile]
    const { code, out, err, left } = await world.run(args)
    expect(err).not.toContain('Error')
    expect(code).toBe(0)
    expect(out).toContain('Sealpost / other, median of 1 round')
    const { comparison } = await world.result<{ comparison: ComparisonResult }>()
    expect(comparison).toMatchObject({ peers: 4, messagesPerPeer: 10, seconds: 1, rounds: 1, clients: 2 })
    expect(comparison.versions).toMatchObject({
      redis: expect.stringMatching(/^Redis \d/),
      sealpost: expect.any(String),
    })
    const phases = [null, 1_000, 5_000]
    expect(comparison.runs.map(({ server, rate }) => [server, rate])).toEqual(
      ['sealpost', 'redis'].flatMap((server) => phases.map((rate) => [server, rate])),
    )
    for (const { perSecond, p50, p99, rssMb } of comparison.runs) {
      for (const figure of [perSecond, p50, rssMb]) expect(figure).toBeGreaterThan(0)
      expect(p99).toBeGreaterThanOrEqual(p50)
    }
    expect(left).toEqual([])
    expect(await programsOf(world.folder)).toEqual([])
  })

test.each([
  ['nats', 'NATS_SERVER'],
  ['redis', 'REDIS_SERVER'],
])('a missing program of %s ends it with one sentence before the first run', async (name, variable) => {
  const { code, err, left } = await world.run(['4', '10', '--against', name], { [variable]: '/absent/server' })
  expect([code, err.trim()]).toEqual([1, `${variable}=/absent/server: there is no such program.`])
  expect(left).toEqual([])
})
