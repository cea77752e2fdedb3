import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { encodeBinary } from './codec.ts'
import { clientFrames, serverFrames } from './frames.ts'
import { decodeClientFrame, decodeServerFrame } from './json.ts'
import { fuzz, REASON } from './test/fuzz.ts'

const decoders = fc.constantFrom(decodeClientFrame, decodeServerFrame)
const numbers = [...clientFrames, ...serverFrames].map(({ number }) => number)

test('no input of a seeded fuzz run throws, leaks, or has a second accepted encoding', () => {
  const report = fuzz({ seed: 20_261_121, inputs: 30_000 })
  // A run is meaningful only if it reaches both sides and every kind of refusal.
  expect(report.accepted).toBeGreaterThan(3_000)
  const kinds = new Set(Object.keys(report.reasons).map((reason) => reason.replaceAll(/\b\d+(\.\.\d+)?/g, 'n')))
  expect([...kinds].sort()).toEqual(
    [
      'cut short', 'frame too long', 'integer over n^n - n', 'missing key', 'nested too deep', 'not JSON', 'not a flag', 'not a list', 'not a token',
      'not an integer in n', 'not an object', 'not base64url', 'not n bytes', 'not n bytes of lower-case hex', 'not n items',
      'trailing bytes', 'unknown choice', 'unknown frame', 'unknown or missing key',
    ], // biome-ignore format: a list
  )
})

test('the oracle detects a reason that repeats input', () => {
  expect(REASON.test('not 40..131072 bytes')).toBe(true)
  expect(REASON.test('unexpected token x')).toBe(false)
})

test('arbitrary bytes after a frame number are refused, or encode what they decode to', () => {
  const bytes = fc.tuple(fc.constantFrom(...numbers), fc.uint8Array({ maxLength: 400 }))
  return fc.assert(
    fc.property(decoders, bytes, (decode, [number, rest]) => {
      const wire = Uint8Array.of(number, ...rest)
      const decoded = decode('binary', wire)
      expect(decoded.ok ? encodeBinary(decoded.frame) : REASON.test(decoded.reason)).toEqual(decoded.ok ? wire : true)
    }),
    { numRuns: 2000 },
  )
})

test('arbitrary JSON and text is decoded or refused', () => {
  const types = [...clientFrames, ...serverFrames].map(({ type }) => type)
  const typed = fc.tuple(fc.constantFrom(...types), fc.dictionary(fc.string(), fc.jsonValue()))
  const objects = typed.map(([type, fields]) => JSON.stringify({ ...fields, type }))
  return fc.assert(
    fc.property(decoders, fc.oneof(fc.string(), fc.json(), objects), (decode, text) => {
      const decoded = decode('json', text)
      expect(decoded.ok || REASON.test(decoded.reason)).toBe(true)
    }),
    { numRuns: 2000 },
  )
})
