import { expect, test } from 'vitest'
import { samples } from '../vectors/samples.ts'
import { fuzz, REASON } from './testing-fuzz.ts'

const corpus = samples.map(({ frame }) => frame)

test('no input of a seeded fuzz run throws, leaks, or is accepted in a second spelling', () => {
  const report = fuzz({ seed: 20_261_121, inputs: 50_000, corpus })
  // The run is worth something only while it reaches both sides, and every kind of refusal.
  expect(report.accepted).toBeGreaterThan(5_000)
  const kinds = new Set(Object.keys(report.reasons).map((reason) => reason.replaceAll(/\b\d+(\.\.\d+)?/g, 'n')))
  expect([...kinds].sort()).toEqual(
    [
      'cut short', 'frame too long', 'integer over n^n - n', 'missing key', 'not JSON', 'not a flag', 'not a list', 'not a token',
      'not an integer in n', 'not an object', 'not base64url', 'not n bytes', 'not n bytes of lower-case hex', 'not n items',
      'trailing bytes', 'unknown choice', 'unknown frame', 'unknown or missing key',
    ], // biome-ignore format: a list
  )
})

test('the oracle knows a reason that repeats input', () => {
  expect(REASON.test('not 40..131072 bytes')).toBe(true)
  expect(REASON.test('unexpected token x')).toBe(false)
})
