/** Tests the load test with several brokers and databases. */
import { expect, test } from 'vitest'
import type { LoadResult } from './run/result.ts'
import { LoadTestWorld } from './test/testing-run.ts'

const world = new LoadTestWorld()
/** A short interval, so that a lost hint costs little. */
const POLLING = { POLL_MS: '100' }
const CLEAN = { lost: 0, timedOut: 0, misdelivered: 0, outOfOrder: 0, leftInQueue: 0 }

test('two shards, two meshes and two generators deliver everything', async () => {
  const words = ['8', '20', '--shards', '2', '--cross', '0.5', '--generators', '2', '--json', world.resultFile]
  const { code, out, left } = await world.run(words, POLLING)
  expect(out).toContain('160 messages, nothing lost')
  expect(out).toContain('2 meshes over 2 shards')
  expect(code).toBe(0)
  const result = await world.result<LoadResult>()
  expect(result).toMatchObject({ ...CLEAN, delivered: 160, generators: 2, meshes: 2, cells: 1 })
  expect(result.crossShare).toBeGreaterThan(0.3)
  expect(result.shards.map(({ peers }) => peers)).toEqual([4, 4])
  expect(result.shards.map(({ accepted }) => accepted)).toEqual([80, 80])
  expect(result.shards.reduce((sum, { pushed }) => sum + pushed!, 0)).toBeGreaterThanOrEqual(160)
  const { leasedOnInsert, claimed, collected } = result.deliveries!
  expect(leasedOnInsert + claimed + collected).toBeGreaterThanOrEqual(160)
  expect(left).toEqual([])
})

test('each cell has its own Postgres', async () => {
  const { code, out, left } = await world.run(['8', '10', '--cells', '2', '--json', world.resultFile], {
    DATABASE_URL: '',
  })
  expect(out).toContain('2 meshes over 2 shards in 2 cells')
  expect(code).toBe(0)
  const result = await world.result<LoadResult>()
  expect(result).toMatchObject({ ...CLEAN, delivered: 80, cells: 2, crossShare: 0 })
  expect(result.shards.map(({ accepted }) => accepted)).toEqual([40, 40])
  expect(left).toEqual([])
})
