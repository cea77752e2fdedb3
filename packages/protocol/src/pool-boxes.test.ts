import type { PeerKey } from '@sealpost/std'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { encodeBoxes, readBoxes } from './index.ts'

const keyOf = (n: number) => n.toString(16).padStart(64, '0') as PeerKey
const box = (n: number, length = 40) => new Uint8Array(length).fill(n)

test('boxes are read as they were written, by key', () => {
  const bytes = encodeBoxes([
    { peer: keyOf(2), box: box(2, 300) },
    { peer: keyOf(1), box: box(1) },
  ])
  expect(readBoxes(bytes)).toEqual([
    { peer: keyOf(1), box: box(1) },
    { peer: keyOf(2), box: box(2, 300) },
  ])
})

test('boxes that are truncated, empty, too short, out of order, duplicate or too many are refused', () => {
  const one = encodeBoxes([{ peer: keyOf(1), box: box(1) }])
  const two = encodeBoxes([{ peer: keyOf(2), box: box(2) }])
  const joined = (...parts: Uint8Array[]) => readBoxes(new Uint8Array(Buffer.concat(parts)))
  expect(joined(one, two)).toHaveLength(2)
  for (const parts of [[], [two, one], [one, one], [one, two.subarray(0, -1)], [one, two.subarray(0, 20)]])
    expect(joined(...parts)).toBe(null)
  expect(joined(encodeBoxes([{ peer: keyOf(1), box: box(1, 39) }]))).toBe(null)
  const many = Array.from({ length: 65 }, (_, n) => encodeBoxes([{ peer: keyOf(n), box: box(1) }]))
  expect(joined(...many)).toBe(null)
  expect(joined(...many.slice(1))).toHaveLength(64)
})

test('arbitrary bytes are read or refused without an exception', () => {
  fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => void readBoxes(bytes)))
})
