import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { paddedLength } from '../index.ts'
import { readVector } from '../test/fixtures.ts'

/** Padmé as the paper defines it: the length keeps as many bits as its exponent has, and the others become zero. */
function padme(length: number): number {
  const exponent = Math.floor(Math.log2(length))
  const leading = Math.floor(Math.log2(exponent)) + 1
  const unit = 2 ** (exponent - leading)
  return Math.ceil(length / unit) * unit
}

const BODY_MAX = 65_536

test('lengths up to 256 bytes are one bucket, and longer ones are those of Padmé', () => {
  for (let bytes = 0; bytes <= 256; bytes++) expect(paddedLength(bytes)).toBe(256)
  for (let bytes = 257; bytes <= BODY_MAX; bytes++)
    if (paddedLength(bytes) !== padme(bytes)) expect([bytes, paddedLength(bytes)]).toEqual([bytes, padme(bytes)])
})

test('up to 64 KiB, there are 129 buckets, and padding adds less than 1/16', () => {
  const buckets = new Set<number>()
  for (let bytes = 1; bytes <= BODY_MAX; bytes++) {
    const padded = paddedLength(bytes)
    buckets.add(padded)
    if (bytes >= 256 && (padded - bytes) * 16 >= bytes) expect(bytes).toBe('padded by less than 1/16')
  }
  expect(buckets.size).toBe(129)
  expect(paddedLength(BODY_MAX)).toBe(BODY_MAX)
})

test('a bucket is its own padded length', () => {
  return fc.assert(
    fc.property(fc.nat(2 ** 30 - 1), (bytes) => {
      const padded = paddedLength(bytes)
      expect(padded).toBeGreaterThanOrEqual(bytes)
      expect(paddedLength(padded)).toBe(padded)
    }),
  )
})

test('the vectors', () => {
  const { paddedLengths } = readVector('envelope.json') as { paddedLengths: [number, number][] }
  expect(paddedLengths.length).toBeGreaterThan(5)
  for (const [bytes, padded] of paddedLengths) expect([bytes, paddedLength(bytes)]).toEqual([bytes, padded])
})
