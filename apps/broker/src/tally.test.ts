import { Histogram, Registry } from 'prom-client'
import { expect, test } from 'vitest'
import { register, Tally } from './tally.ts'

const NAMED = { name: 'sealpost_wait_seconds', help: 'how long' }
const BOUNDS = [0.001, 0.01, 0.1]
const VALUES = [0, 0.001, 0.002, 0.05, 0.1, 7]

test('a scrape shows the same as of the library’s own histogram', async () => {
  const ours = new Registry()
  const theirs = new Registry()
  const tally = register(ours, new Tally({ ...NAMED, bounds: BOUNDS }))
  const histogram = new Histogram({ ...NAMED, buckets: BOUNDS, registers: [theirs] })
  for (const value of VALUES) {
    tally.observe(value)
    histogram.observe(value)
  }
  expect(await ours.metrics()).toBe(await theirs.metrics())
})

test('what was counted up to a bound counts under all that are above it', () => {
  const tally = new Tally({ ...NAMED, bounds: BOUNDS })
  for (const value of VALUES) tally.observe(value)
  expect(tally.distribution).toEqual({ bounds: [...BOUNDS, Number.POSITIVE_INFINITY], counts: [2, 3, 5, 6] })
})
