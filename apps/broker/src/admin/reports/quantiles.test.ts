import { expect, test } from 'vitest'
import { quantile } from '../routes.ts'

const bounds = [1, 2, 4, Number.POSITIVE_INFINITY]
const counted = (...counts: number[]) => ({ bounds, counts })

test('a percentile is interpolated linearly in its bucket', () => {
  expect(quantile(null, counted(0, 10, 10, 10), 0.5)).toBe(1.5)
  expect(quantile(null, counted(10, 10, 10, 10), 0.9)).toBeCloseTo(0.9)
})

test('earlier counts are excluded', () => {
  expect(quantile(counted(100, 100, 100, 100), counted(100, 100, 110, 110), 0.5)).toBe(3)
})

test('without counts there is no percentile, and values above every bound count towards the last bound', () => {
  expect(quantile(counted(5, 5, 5, 5), counted(5, 5, 5, 5), 0.99)).toBeNull()
  expect(quantile(null, counted(0, 0, 0, 3), 0.99)).toBe(4)
})
