import { toHex } from '@sealpost/std'
import * as fc from 'fast-check'
import { describe, expect, test, vi } from 'vitest'
import { refusedSamples, samples } from '../vectors/samples.ts'
import { wireOf } from '../vectors/vectors.ts'
import { encodeBinary } from './codec.ts'
import { Malformed, Reader } from './cursor.ts'
import { clientFrames, type Frame, serverFrames } from './frames.ts'
import { decodeClientFrame, decodeServerFrame, encode, encodeJson } from './json.ts'
import {
  BATCH_MAX,
  ENVELOPE_BYTES_MAX,
  ENVELOPE_BYTES_MIN,
  type Form,
  FRAME_BYTES_MAX,
  LOOKUP_MAX,
  UNPROVEN_FRAME_BYTES_MAX,
} from './limits.ts'
import { frameOf } from './test/arbitraries.ts'
import { REASON } from './test/fuzz.ts'

const forms: readonly Form[] = ['binary', 'json']
const tables = [
  { from: 'server', kinds: serverFrames, decode: decodeServerFrame },
  { from: 'client', kinds: clientFrames, decode: decodeClientFrame },
] as const
const kinds = tables.flatMap(({ from, kinds, decode }) =>
  kinds.map((kind) => ({ from, kind, decode, type: kind.type })),
)
const decoderOf = (from: 'client' | 'server') => (from === 'client' ? decodeClientFrame : decodeServerFrame)

describe.each(kinds)('$type', ({ kind, decode }) => {
  test('decodes to what was encoded, in both forms', () => {
    void fc.assert(
      fc.property(frameOf(kind), (frame) => {
        const [binary, json] = [encodeBinary(frame), encodeJson(frame)]
        const decoded = { ok: true, frame }
        expect(decode('binary', binary)).toEqual(decoded)
        expect(decode('json', json)).toEqual(decoded)
        expect(toHex(encodeBinary(frame))).toBe(toHex(binary))
        expect(json).toMatch(/^[\x20-\x7e]*$/)
      }),
      { numRuns: 100 },
    )
  })

  test('a frame that is cut at any byte, or one byte too long, is refused', () => {
    const bytes = encodeBinary(fc.sample(frameOf(kind), { numRuns: 1, seed: 7 })[0]!)
    for (let length = 0; length < bytes.length; length++) expectRefused(decode('binary', bytes.subarray(0, length)))
    expectRefused(decode('binary', Uint8Array.of(...bytes, 0)))
    const text = encodeJson(fc.sample(frameOf(kind), { numRuns: 1, seed: 7 })[0]!)
    for (let length = 0; length < text.length; length++) expectRefused(decode('json', text.slice(0, length)))
  })

  test('an accepted frame with one flipped bit still has only one encoding', () => {
    const bytes = encodeBinary(fc.sample(frameOf(kind), { numRuns: 1, seed: 7 })[0]!)
    for (let bit = 0; bit < bytes.length * 8; bit++) {
      const turned = bytes.slice()
      turned[bit >> 3]! ^= 1 << (bit & 7)
      const decoded = decode('binary', turned)
      if (decoded.ok) expect(toHex(encodeBinary(decoded.frame))).toBe(toHex(turned))
      else expect(decoded.reason).toMatch(REASON)
    }
  })

  test('its keys can have any order, and all are required', () => {
    const text = encodeJson(samples.find(({ frame }) => frame.type === kind.type)!.frame)
    const entries = Object.entries(JSON.parse(text))
    expect(decode('json', JSON.stringify(Object.fromEntries(entries.toReversed())))).toEqual(decode('json', text))
    for (const missing of entries.keys())
      expectRefused(decode('json', JSON.stringify(Object.fromEntries(entries.toSpliced(missing, 1)))))
    for (const more of ['note', '__proto__', 'constructor', 'toString', ''])
      expectRefused(decode('json', text.replace('{', `{${JSON.stringify(more)}:1,`)))
  })
})

test.each(refusedSamples)('$name is refused', (sample) => {
  const decoded = decoderOf(sample.from)(sample.form, wireOf(sample))
  expect(decoded).toMatchObject({ ok: false, code: sample.code, reason: expect.stringMatching(REASON) })
})

test.each(samples)('the other side must not send $name', ({ from, frame }) => {
  const other = decoderOf(from === 'client' ? 'server' : 'client')
  for (const form of forms) expectRefused(other(form, encode(form, frame)))
})

test('every unassigned frame number is refused', () => {
  const known = new Set(kinds.map(({ kind }) => kind.number))
  for (let number = 0; number < 256; number++)
    if (!known.has(number))
      for (const { decode } of tables) expectRefused(decode('binary', new Uint8Array(64).fill(0).with(0, number)))
})

describe('limits', () => {
  const hex = (bytes: number) => '5a'.repeat(bytes)
  const settle = (count: number) => ({ type: 'settle', ids: Array.from({ length: count }, (_, i) => i) })
  const lookup = (count: number) => ({ type: 'lookup', ref: 0, peers: Array.from({ length: count }, () => hex(32)) })
  const send = (bytes: number) => ({
    type: 'send',
    envelopes: [
      {
        envelopeId: hex(16),
        recipient: hex(32),
        priority: 'now',
        isHead: true,
        ttlSeconds: 0,
        envelope: new Uint8Array(bytes),
      },
    ],
  })

  test.each([
    ['items', settle, 1, BATCH_MAX],
    ['peers', lookup, 1, LOOKUP_MAX],
    ['bytes of an envelope', send, ENVELOPE_BYTES_MIN, ENVELOPE_BYTES_MAX],
  ])('%s', (_, make, min, max) => {
    for (const form of forms) {
      for (const size of [min, max]) {
        const frame = make(size) as unknown as Frame
        expect(decodeClientFrame(form, encode(form, frame))).toEqual({ ok: true, frame })
      }
      for (const size of [min - 1, max + 1])
        expect(() => encode(form, make(size) as unknown as Frame)).toThrow(Malformed)
    }
    expectRefused(decodeClientFrame('json', textOf(make(min - 1))))
    expectRefused(decodeClientFrame('json', textOf(make(max + 1))))
  })

  const smallest = send(ENVELOPE_BYTES_MIN) as unknown as Frame

  test('bytes of a frame', () => {
    const one = encodeJson(smallest)
    expect(decodeClientFrame('json', one.padEnd(FRAME_BYTES_MAX))).toMatchObject({ ok: true })
    expect(decodeClientFrame('json', one.padEnd(FRAME_BYTES_MAX + 1))).toEqual(TOO_LARGE)
    expect(decodeClientFrame('binary', new Uint8Array(FRAME_BYTES_MAX + 1))).toEqual(TOO_LARGE)
    const long = { ...send(ENVELOPE_BYTES_MAX), envelopes: Array(2).fill(send(ENVELOPE_BYTES_MAX).envelopes[0]) }
    for (const form of forms) expect(() => encode(form, long as unknown as Frame)).toThrow('frame too long')
  })

  test('bytes of a frame before a key is proven', () => {
    for (const form of forms) {
      const wire = encode(form, smallest)
      expect(decodeClientFrame(form, wire, 'unproven')).toMatchObject({ ok: true })
    }
    const one = encodeJson(smallest)
    expect(decodeClientFrame('json', one.padEnd(UNPROVEN_FRAME_BYTES_MAX), 'unproven')).toMatchObject({ ok: true })
    expect(decodeClientFrame('json', one.padEnd(UNPROVEN_FRAME_BYTES_MAX + 1), 'unproven')).toEqual(TOO_LARGE)
    expect(decodeClientFrame('binary', new Uint8Array(UNPROVEN_FRAME_BYTES_MAX + 1), 'unproven')).toEqual(TOO_LARGE)
  })

  test('bytes of a JSON frame, by its type', () => {
    const ping = encodeJson({ type: 'ping', ref: 1 })
    expect(decodeClientFrame('json', ping.padEnd(UNPROVEN_FRAME_BYTES_MAX))).toMatchObject({ ok: true })
    expect(decodeClientFrame('json', ping.padEnd(UNPROVEN_FRAME_BYTES_MAX + 1))).toEqual(TOO_LARGE)
    const spaced = JSON.stringify(JSON.parse(encodeJson(settle(BATCH_MAX) as Frame)), null, 2)
    expect(spaced.length).toBeGreaterThan(UNPROVEN_FRAME_BYTES_MAX / 2)
    expect(decodeClientFrame('json', `{ "type" : "settle", ${spaced.slice(spaced.indexOf('"ids"'))}`.padEnd(20_000))).toMatchObject({ ok: true }) // biome-ignore format: one thing
    const typeLast = `{"ids":[1],"type":"settle"}`
    expect(decodeClientFrame('json', typeLast)).toMatchObject({ ok: true })
    expect(decodeClientFrame('json', typeLast.padEnd(20_000))).toMatchObject({ reason: 'type not first' })
  })

  /** Returns JSON as a careless client may write it. */
  const textOf = (frame: object) =>
    JSON.stringify(frame, (_, value) =>
      value instanceof Uint8Array ? value.toBase64({ alphabet: 'base64url', omitPadding: true }) : value,
    )
})

test.each([
  ['', false], ['a', false], ['5', true], ['5.0', true], ['1e3', true], ['0', true], ['4294967295', true], ['4294967296', false],
  ['-0', false], ['-1', false], ['5.5', false], ['1e999', false], ['-1e999', false], ['"5"', false], ['null', false], ['true', false],
  ['[5]', false], ['{}', false], ['9007199254740993', false], ['NaN', false], ['05', false],
])('a u32 written as %j: %j', (text, isGood) => {
  expect(decodeClientFrame('json', `{"type":"ping","ref":${text}}`).ok).toBe(isGood)
}) // biome-ignore format: a table

test('u53 ends at 2^53 - 1, in both forms', () => {
  const max = Number.MAX_SAFE_INTEGER
  expect(decodeClientFrame('json', `{"type":"settle","ids":[${max}]}`)).toEqual({
    ok: true,
    frame: { type: 'settle', ids: [max] },
  })
  expectRefused(decodeClientFrame('json', `{"type":"settle","ids":[${max + 1}]}`))
  const bytes = (high: number[]) => Uint8Array.of(18, 0, 1, ...high, 0xff, 0xff, 0xff, 0xff)
  expect(decodeClientFrame('binary', bytes([0, 0x1f, 0xff, 0xff]))).toEqual({
    ok: true,
    frame: { type: 'settle', ids: [max] },
  })
  for (const high of [
    [0, 0x20, 0, 0],
    [0xff, 0xff, 0xff, 0xff],
    [1, 0, 0, 0],
  ])
    expectRefused(decodeClientFrame('binary', bytes(high)))
})

test('JSON nested deeper than 8 is refused before it is parsed', () => {
  const parse = vi.spyOn(JSON, 'parse')
  try {
    const deep = (levels: number) => `{"type":"settle","ids":${'['.repeat(levels - 1)}${']'.repeat(levels - 1)}}`
    for (const [text, standing] of [
      [deep(9), 'unproven'],
      ['['.repeat(9), 'unproven'],
      [deep(9).padEnd(1025), 'proven'],
      [deep(60_000), 'proven'],
    ] as const)
      expect(decodeClientFrame('json', text, standing)).toMatchObject({ code: 'frame_malformed', reason: 'nested too deep' }) // biome-ignore format: one thing
    expect(parse).not.toHaveBeenCalled()
    expectRefused(decodeClientFrame('json', deep(8), 'unproven'))
    expect(parse).toHaveBeenCalledOnce()
  } finally {
    parse.mockRestore()
  }
})

test('the last of duplicate keys applies, and only the JSON parser reads the text', () => {
  expect(decodeClientFrame('json', '{"type":"ping","ref":1,"ref":2}')).toEqual({
    ok: true,
    frame: { type: 'ping', ref: 2 },
  })
  expectRefused(decodeClientFrame('json', '{"type":"ping","type":"send","ref":1}'))
})

test('keys of the prototype neither pass nor pollute', () => {
  for (const text of [
    '{"type":"retry","items":[{"id":1,"__proto__":{"afterMs":1}}]}',
    '{"type":"retry","items":[{"id":1,"afterMs":1,"__proto__":{"admin":true}}]}',
    '{"type":"retry","items":[{"id":1,"constructor":{"prototype":{"admin":true}}}]}',
    '{"type":"__proto__"}',
    '{"__proto__":{"type":"ping","ref":1}}',
    '{"type":"retry","items":{"__proto__":[]}}',
  ])
    expectRefused(decodeClientFrame('json', text))
  expect(({} as Record<string, unknown>).admin).toBeUndefined()
})

test('a polluted prototype fills no missing key', () => {
  Object.defineProperty(Object.prototype, 'ref', { value: 1, configurable: true })
  try {
    expectRefused(decodeClientFrame('json', '{"type":"ping","note":1}'))
  } finally {
    Reflect.deleteProperty(Object.prototype, 'ref')
  }
})

test('deep nesting and huge values are refused, whatever their key', () => {
  const half = FRAME_BYTES_MAX / 2 - 50
  for (const value of [
    '['.repeat(half) + ']'.repeat(half),
    `${'{"a":'.repeat(half / 6)}1${'}'.repeat(half / 6)}`,
    `"${'x'.repeat(2 * half)}"`,
    '9'.repeat(2 * half),
    `[${'{},'.repeat(half / 3)}{}]`,
  ])
    for (const text of [`{"type":"settle","ids":${value}}`, `{"type":${value},"ids":[1]}`, value])
      expectRefused(decodeClientFrame('json', text))
})

test('a refusal repeats nothing of its input', () => {
  const secret = 'hunter2hunter2'
  for (const text of [
    secret,
    `{"type":"${secret}"}`,
    `{"type":"ping","${secret}":1}`,
    `{"type":"ping","ref":"${secret}"}`,
    `{"type":"lookup","ref":1,"peers":["${secret}"]}`,
  ])
    expect(JSON.stringify(decodeClientFrame('json', text))).not.toContain(secret)
})

describe("an invalid value from a caller's bug is not encoded", () => {
  const good = Object.fromEntries(samples.map(({ frame }) => [frame.type, frame])) as unknown as Record<string, any>
  const item = (type: string, list: string, change: object) => ({
    ...good[type],
    [list]: [{ ...good[type][list][0], ...change }],
  })

  test.each([
    ['an unknown frame', { type: 'hallo' }],
    ['no frame', {}],
    ['NaN', { type: 'ping', ref: Number.NaN }],
    ['no number', { type: 'ping' }],
    ['a number as text', { type: 'ping', ref: '1' }],
    ['an unknown priority', item('send', 'envelopes', { priority: 'soon' })],
    ['no priority', item('send', 'envelopes', { priority: undefined })],
    ['a flag that is a number', item('send', 'envelopes', { isHead: 1 })],
    ['no flag', item('send', 'envelopes', { isHead: undefined })],
    ['an id in capitals', item('send', 'envelopes', { envelopeId: 'AB'.repeat(16) })],
    ['an id with letters beyond f', item('send', 'envelopes', { envelopeId: '0g'.repeat(16) })],
    ['an id beyond ASCII', item('send', 'envelopes', { envelopeId: '\u0130\uff10'.repeat(16) })],
    ['an id of the wrong length', item('send', 'envelopes', { envelopeId: 'ab'.repeat(15) })],
    ['an id that is a list', item('send', 'envelopes', { envelopeId: Array(32).fill('a') })],
    ['an envelope that is text', item('send', 'envelopes', { envelope: 'x'.repeat(40) })],
    ['no envelope', item('send', 'envelopes', { envelope: undefined })],
    ['an unknown code', item('nack', 'items', { code: 'E_BUSY' })],
    ['an object instead of a list', { type: 'settle', ids: { length: 1, 0: 1 } }],
    ['an item that is null', { type: 'retry', items: [null] }],
    ['an item of another list', { type: 'settle', ids: [undefined] }],
    ['a nonce of 31 bytes', { ...good.hello, nonce: new Uint8Array(31) }],
    ['a reason with a line break', { ...good.refused, reason: 'a\nb' }],
    ['a reason beyond ASCII', { ...good.refused, reason: 'é' }],
    ['a reason of 121 characters', { ...good.refused, reason: 'x'.repeat(121) }],
  ])('%s', (_, frame) => {
    for (const form of forms) expect(() => encode(form, frame as Frame)).toThrow(Malformed)
    // A failed encoding must not leave bytes before the next frame.
    expect(toHex(encodeBinary({ type: 'ping', ref: 1 }))).toBe('1600000001')
  })
})

describe('decoding cost is linear in the input', () => {
  test('binary: a field is read once, and reading ends at the first error', () => {
    const settle = (count: number) => encodeBinary({ type: 'settle', ids: Array(count).fill(1) })
    const [small, large] = [readsOf(settle(100)), readsOf(settle(1000))]
    expect(large).toBeLessThanOrEqual(small * 10)
    expect(readsOf(settle(1000).fill(0xff, 3, 11))).toBeLessThan(5)
    expect(readsOf(Uint8Array.of(18, 3, 0xe8))).toBeLessThan(5)
  })

  // The large frame is as long as 16 small ones: a quadratic decoder takes 16 times as long.
  test.each([
    ['a long list', (size: number) => `{"type":"settle","ids":[${'1,'.repeat(size / 2)}1]}`],
    ['a long blob', (size: number) => `{"type":"goaway","retryAfterMs":"${'A'.repeat(size)}"}`],
    ['many keys', (size: number) => `{"type":"ping",${Array.from({ length: size / 10 }, (_, i) => `"k${i}":1`)}}`],
    ['spaces', (size: number) => `{"type":"ping","ref":1${' '.repeat(size)}}`],
    ['brackets', (size: number) => '['.repeat(size)],
    ['a lie of hex', (size: number) => `{"type":"lookup","ref":1,"peers":["${'a'.repeat(size)}!"]}`],
  ])('json: %s', (_, make) => {
    const [small, large] = [make(8_000), make(128_000)]
    expect(costOf([large]) / costOf(Array(16).fill(small))).toBeLessThan(8)
  })
})

const TOO_LARGE = { ok: false, code: 'frame_too_large', reason: 'frame too long' }

function expectRefused(decoded: { ok: boolean }): void {
  const code = expect.stringMatching(/^frame_(?:malformed|too_large)$/)
  expect(decoded).toMatchObject({ ok: false, code, reason: expect.stringMatching(REASON) })
}

function readsOf(bytes: Uint8Array): number {
  let reads = 0
  const { take } = Reader.prototype
  Reader.prototype.take = function (length) {
    reads += 1
    return take.call(this, length)
  }
  decodeClientFrame('binary', bytes)
  Reader.prototype.take = take
  return reads
}

/** Returns the fastest of many tries, to exclude other load. */
function costOf(texts: readonly string[]): number {
  let best = Number.POSITIVE_INFINITY
  for (let i = 0; i < 15; i++) {
    const startedAt = performance.now()
    for (const text of texts) decodeClientFrame('json', text)
    best = Math.min(best, performance.now() - startedAt)
  }
  return Math.max(best, 0.001)
}
