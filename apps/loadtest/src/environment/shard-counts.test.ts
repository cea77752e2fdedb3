import { expect, test } from 'vitest'
import { countsIn, deliveriesOf, since } from './shard-counts.ts'

const SCRAPED = `# HELP sealpost_deliveries_pushed_total pushes, repeated ones included
# TYPE sealpost_deliveries_pushed_total counter
sealpost_deliveries_pushed_total 107
sealpost_envelopes_accepted_total 103
sealpost_deliveries_leased_on_insert_total 90
sealpost_deliveries_collected_total 4
sealpost_claim_deliveries_bucket{le="1"} 3
sealpost_claim_deliveries_sum 13
sealpost_claim_deliveries_count 9
`
const counts = { accepted: 103, pushed: 107, leasedOnInsert: 90, claimed: 13, collected: 4 }

test('what a broker did is read from its metrics: claimed are the deliveries, not the statements', () => {
  expect(countsIn(SCRAPED)).toEqual(counts)
})

test('a metric that is missing is an error, not a zero', () => {
  expect(() => countsIn(SCRAPED.replace('sealpost_deliveries_collected_total', 'renamed'))).toThrow(
    'has no sealpost_deliveries_collected_total',
  )
})

test('what happened before the run is subtracted', () => {
  const first = { accepted: 3, pushed: 3, leasedOnInsert: 1, claimed: 2, collected: 0 }
  expect(since(first, counts)).toEqual({ accepted: 100, pushed: 104, leasedOnInsert: 89, claimed: 11, collected: 4 })
  expect(since(null, counts)).toBeNull()
})

test('deliveries of several brokers are added, and unknown when one broker is', () => {
  expect(deliveriesOf([counts, counts])).toEqual({ leasedOnInsert: 180, claimed: 26, collected: 8 })
  expect(deliveriesOf([counts, null])).toBeNull()
})
