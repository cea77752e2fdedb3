import { type PeerKey, seededRandom } from '@sealpost/std'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Reader, Writer } from './cursor.ts'
import { decodeClientFrame, encodeBinary, encodeBoxes, readBoxes } from './index.ts'
import { ackItem, bodyItem, pushItem, sendItem, terms } from './items.ts'
import type { LaidOut } from './layout.ts'
import { valueFor } from './test/fuzz.ts'

test.each([
  ['send', sendItem],
  ['push', pushItem],
  ['ack', ackItem],
  ['terms', terms],
  ['pushBody', bodyItem],
] as [string, LaidOut<unknown>][])('an item of %s laid out by hand matches the table', (_, item) => {
  const random = seededRandom(7)
  const writer = new Writer()
  for (let n = 0; n < 200; n++) {
    const value = valueFor(random, item.shape)
    item.byTable.write(writer, value)
    const bytes = writer.finish()
    item.write(writer, value)
    expect(writer.finish()).toEqual(bytes)
    const read = item.read(new Reader(bytes))
    expect(read).toEqual(item.byTable.read(new Reader(bytes)))
    expect(Object.keys(read as object)).toEqual(item.shape.kind === 'struct' && item.shape.fields.map(([name]) => name))
  }
})

test('keys with the same slot in the name cache are distinguished', () => {
  const peers = Array.from({ length: 4 }, (_, n) => `${String(n % 3).repeat(56)}0000abcd`) as never[]
  for (let round = 0; round < 3; round++) {
    const decoded = decodeClientFrame('binary', encodeBinary({ type: 'lookup', ref: round, peers }))
    expect(decoded).toEqual({ ok: true, frame: { type: 'lookup', ref: round, peers } })
  }
})

test('a cached name does not change with the bytes that it was read from', () => {
  const lookup = (peer: string) => encodeBinary({ type: 'lookup', ref: 1, peers: [peer as never] })
  const [one, other] = [`${'1'.repeat(56)}0000beef`, `${'2'.repeat(56)}0000beef`]
  const wire = Buffer.from(lookup(one))
  decodeClientFrame('binary', wire)
  wire.set(lookup(other))
  expect(decodeClientFrame('binary', wire)).toMatchObject({ frame: { peers: [other] } })
  expect(decodeClientFrame('binary', lookup(one))).toMatchObject({ frame: { peers: [one] } })
})

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
