import { seededRandom } from '@sealpost/std'
import { expect, test } from 'vitest'
import { Reader, Writer } from './cursor.ts'
import { decodeClientFrame, encodeBinary } from './index.ts'
import { ackItem, bodyItem, pushItem, sendItem, terms } from './items.ts'
import type { LaidOut } from './layout.ts'
import { valueFor } from './testing-fuzz.ts'

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
