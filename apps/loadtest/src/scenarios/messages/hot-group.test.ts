import { median } from '@sealpost/harness/report/text'
import { expect, test } from 'vitest'
import { ratiosOf } from './hot-group.ts'

test('the ratio of a round is unaffected by a machine that slows down from turn to turn', () => {
  const slowdown = [1, 2, 3, 4]
  const [a1, b1, b2, a2] = slowdown as [number, number, number, number]
  expect(ratiosOf([a1, a2], [b1, b2])).toEqual([1])
  expect(ratiosOf([2 * a1, 2 * a2, 8], [b1, b2, 1])).toEqual([2])
  expect(ratiosOf([1], [1])).toEqual([])
})

test('the median of an even number of values lies between the two middle ones', () => {
  expect([[3], [9, 1, 2], [4, 1, 2, 9], []].map(median)).toEqual([3, 2, 3, 0])
})
