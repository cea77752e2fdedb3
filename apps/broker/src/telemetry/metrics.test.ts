import { Histogram, Registry } from 'prom-client'
import { expect, test } from 'vitest'
import { FastHistogram, FastHistograms, register } from './metrics.ts'

const NAMED = { name: 'sealpost_wait_seconds', help: 'how long' }
const BOUNDS = [0.001, 0.01, 0.1]
const VALUES = [0, 0.001, 0.002, 0.05, 0.1, 7]

test('a scrape equals that of the library’s own histogram', async () => {
  const ours = new Registry()
  const theirs = new Registry()
  const fast = register(ours, new FastHistogram({ ...NAMED, bounds: BOUNDS }))
  const histogram = new Histogram({ ...NAMED, buckets: BOUNDS, registers: [theirs] })
  for (const value of VALUES) {
    fast.observe(value)
    histogram.observe(value)
  }
  expect(await ours.metrics()).toBe(await theirs.metrics())
})

test('a scrape with a label also equals the library’s', async () => {
  const ours = new Registry()
  const theirs = new Registry()
  const fast = register(ours, new FastHistograms({ ...NAMED, bounds: BOUNDS, label: 'route' }))
  const histogram = new Histogram({ ...NAMED, buckets: BOUNDS, labelNames: ['route'], registers: [theirs] })
  expect(await ours.metrics()).toBe(await theirs.metrics())
  for (const [i, value] of VALUES.entries()) {
    fast.observe(`/${i % 2}`, value)
    histogram.observe({ route: `/${i % 2}` }, value)
  }
  expect(await ours.metrics()).toBe(await theirs.metrics())
})

test('a bucket includes the counts of all lower bounds', () => {
  const fast = new FastHistogram({ ...NAMED, bounds: BOUNDS })
  for (const value of VALUES) fast.observe(value)
  expect(fast.distribution).toEqual({ bounds: [...BOUNDS, Number.POSITIVE_INFINITY], counts: [2, 3, 5, 6] })
})
