import { expect, test } from 'vitest'
import { countsIn, deliveriesOf, since } from './result.ts'

const METRICS = `# HELP sealpost_deliveries_pushed_total pushes, repeated ones included
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

test('the counts of a broker come from its metrics, and `claimed` counts deliveries, not statements', () => {
  expect(countsIn(METRICS)).toEqual(counts)
})

test('a missing metric is an error, not a zero', () => {
  expect(() => countsIn(METRICS.replace('sealpost_deliveries_collected_total', 'renamed'))).toThrow(
    'has no sealpost_deliveries_collected_total',
  )
})

test('counts from before the run are subtracted', () => {
  const first = { accepted: 3, pushed: 3, leasedOnInsert: 1, claimed: 2, collected: 0 }
  expect(since(first, counts)).toEqual({ accepted: 100, pushed: 104, leasedOnInsert: 89, claimed: 11, collected: 4 })
  expect(since(null, counts)).toBeNull()
})

test("the deliveries of several brokers are added, and unknown if one broker's are", () => {
  expect(deliveriesOf([counts, counts])).toEqual({ leasedOnInsert: 180, claimed: 26, collected: 8 })
  expect(deliveriesOf([counts, null])).toBeNull()
})
