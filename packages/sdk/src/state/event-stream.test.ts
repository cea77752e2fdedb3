import { expect, test } from 'vitest'
import { recordsOf, type StreamLine } from './event-stream.ts'

const int = (bytes: number, value: number | bigint) => {
  const out = new DataView(new ArrayBuffer(bytes))
  if (bytes === 8) out.setBigInt64(0, BigInt(value))
  else if (bytes === 4) out.setInt32(0, Number(value))
  else out.setInt16(0, Number(value))
  return new Uint8Array(out.buffer)
}
const join = (...parts: Uint8Array[]) => new Uint8Array(parts.flatMap((part) => [...part]))
const field = (bytes: Uint8Array | null) => (bytes ? join(int(4, bytes.length), bytes) : int(4, -1))
const record = (payload: Uint8Array) => join(new Uint8Array([100]), int(4, 4 + payload.length), payload)
const row = (seq: number, kind: number, value: Uint8Array | null, body: Uint8Array | null = null) =>
  record(join(int(2, 5), field(int(8, seq)), field(int(8, 1_795_309_723_192_001)), field(int(2, kind)), field(value), field(body))) // biome-ignore format: one thing
const END = record(int(2, -1))
const VALUE = new Uint8Array([1, 2, 3])
const BODY = new Uint8Array([4])

async function read(bytes: Uint8Array, size = bytes.length): Promise<StreamLine[]> {
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => {
      for (let at = 0; at < bytes.length; at += size) controller.enqueue(bytes.slice(at, at + size))
      controller.close()
    },
  })
  const found: StreamLine[] = []
  for await (const line of recordsOf(new Response(body))) found.push(line)
  return found
}

test('records are read like lines, wherever they are cut', async () => {
  const bytes = join(row(7, 1, VALUE), row(9, 2, VALUE), row(10, 3, VALUE, BODY), END)
  const event = { type: 'event', atUs: 1_795_309_723_192_001, value: VALUE, body: null }
  for (const size of [1, 3, 50, bytes.length])
    expect(await read(bytes, size)).toEqual([
      { ...event, seq: 7, kind: 1 },
      { ...event, seq: 9, kind: 2 },
      { ...event, seq: 10, kind: 3, body: BODY },
      { type: 'end', hasMore: false },
    ])
})

test('a truncated response has no end', async () => {
  expect((await read(join(row(7, 1, VALUE), row(8, 1, VALUE).slice(0, -1)))).map(({ type }) => type)).toEqual(['event'])
})

test.each<[string, Uint8Array]>([
  ['another kind of message', join(new Uint8Array([99]), row(7, 1, VALUE).slice(1))],
  ['a negative length', join(new Uint8Array([100]), int(4, -5), VALUE)],
  ['an excessive length', join(new Uint8Array([100]), int(4, 2 ** 30), VALUE)],
  ['a field beyond its record', record(join(int(2, 5), int(4, 99), VALUE))],
  ['too few fields', record(join(int(2, 5), field(VALUE)))],
  ['additional bytes', record(join(row(7, 1, VALUE).slice(5), VALUE))],
  ['a number of the wrong size', record(join(int(2, 5), field(VALUE), field(int(8, 1)), field(int(2, 1)), field(VALUE), field(null)))], // biome-ignore format: one thing
  ['an unknown kind', row(7, 4, VALUE)],
  ['no value', row(7, 1, null)],
  ['a message without a body', row(7, 3, VALUE)],
  ['a seq below 0', row(-1, 1, VALUE)],
])('malformed records are refused: %s', async (_, bytes) => {
  await expect(read(bytes)).rejects.toMatchObject({ code: 'answer_malformed' })
})
