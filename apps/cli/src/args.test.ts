import { expect, test } from 'vitest'
import { parseTimestamp } from './args.ts'

test.each([
  ['2026-11-22T14:03Z', '2026-11-22T14:03:00.000Z', 0],
  ['2026-11-22T14:03:07.25Z', '2026-11-22T14:03:07.250Z', 0],
  ['2026-11-22T14:03:07.123456Z', '2026-11-22T14:03:07.123Z', 456],
  ['2026-11-22T14:03:07+02:00', '2026-11-22T12:03:07.000Z', 0],
  ['2026-11-22', '2026-11-22T00:00:00.000Z', 0],
])('%s is a moment', (text, ms, rest) => {
  expect(parseTimestamp(text).us).toBe(new Date(ms).getTime() * 1000 + rest)
})

test('how long ago is a moment, too', () => {
  const { us } = parseTimestamp('2h')
  expect(Math.abs(Date.now() - 2 * 3600_000 - us / 1000)).toBeLessThan(60_000)
})

test.each(['soon', '2026-13-40', '2026-11-22T14', '14:03', '2', ''])('%j is none', (text) => {
  expect(() => parseTimestamp(text)).toThrow('It is a time like')
})
