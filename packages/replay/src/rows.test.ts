import fc from 'fast-check'
import { expect, test } from 'vitest'
import { rowLine } from './pages.ts'
import { CopyRowReader, HeaderStrip, JsonLineWriter, type ReplayRow } from './rows.ts'

const bytes = fc.uint8Array({ maxLength: 40 }).map((value) => Buffer.from(value))
const row: fc.Arbitrary<ReplayRow> = fc.record({
  seq: fc.maxSafeNat(),
  at: fc.maxSafeNat(),
  kind: fc.constantFrom(1, 2, 3),
  value: bytes,
  body: fc.option(bytes),
})
const cuts = fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1 })
const HEADER = Buffer.alloc(19, 9)

test('rows and records are complete for any cut of their bytes', () => {
  fc.assert(
    fc.property(fc.array(row), cuts, fc.boolean(), (rows, sizes, isHeaderApart) => {
      const payloads = [...rows.map(copied), Buffer.from([0xff, 0xff])]
      const records = payloads.map(message)
      const [first, ...others] = payloads as [Buffer, ...Buffer[]]
      const begun = isHeaderApart ? [HEADER, first] : [Buffer.concat([HEADER, first])]
      const reader = new CopyRowReader()
      const strip = new HeaderStrip()
      const read: ReplayRow[] = []
      const kept: Buffer[] = []
      for (const piece of cut(Buffer.concat([...begun, ...others].map(message)), sizes)) {
        reader.take(piece, (row) => read.push({ ...row, value: Buffer.from(row.value), body: row.body && Buffer.from(row.body) })) // biome-ignore format: one thing
        kept.push(Buffer.from(strip.take(Buffer.from(piece))))
      }
      expect(read).toEqual(rows)
      expect(reader.isAtEnd).toBe(true)
      expect(Buffer.concat(kept)).toEqual(Buffer.concat(records))
    }),
  )
})

test('a response that was cut is not at its end', () => {
  const reader = new CopyRowReader()
  reader.take(message(Buffer.concat([HEADER, copied({ seq: 1, at: 1, kind: 1, value: HEADER, body: null })])), () => {})
  expect(reader.isAtEnd).toBe(false)
})

test('a written line equals its JSON', () => {
  fc.assert(
    fc.property(fc.array(row), fc.integer({ min: 0, max: 300 }), (rows, room) => {
      const lines = new JsonLineWriter(room)
      for (const each of rows) lines.row(each)
      const written = lines.take().toString('latin1')
      expect(written).toBe(rows.map(rowLine).join(''))
      for (const line of written.split('\n').slice(0, -1)) JSON.parse(line)
      expect(lines.take()).toHaveLength(0)
    }),
  )
})

function* cut(all: Buffer, sizes: readonly number[]): Generator<Buffer> {
  for (let at = 0, i = 0; at < all.length; i++) {
    const size = sizes[i % sizes.length]!
    yield all.subarray(at, at + size)
    at += size
  }
}

function message(payload: Buffer): Buffer {
  const front = Buffer.from('d....')
  front.writeInt32BE(4 + payload.length, 1)
  return Buffer.concat([front, payload])
}

function copied({ seq, at, kind, value, body }: ReplayRow): Buffer {
  const front = Buffer.alloc(36)
  front.writeInt16BE(5, 0)
  front.writeInt32BE(8, 2)
  front.writeBigInt64BE(BigInt(seq), 6)
  front.writeInt32BE(8, 14)
  front.writeBigInt64BE(BigInt(at), 18)
  front.writeInt32BE(2, 26)
  front.writeInt16BE(kind, 30)
  front.writeInt32BE(value.length, 32)
  const bodyLength = Buffer.alloc(4)
  bodyLength.writeInt32BE(body?.length ?? -1)
  return Buffer.concat([front, value, bodyLength, body ?? Buffer.alloc(0)])
}
