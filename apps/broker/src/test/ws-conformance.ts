/**
 * For tests: cases of RFC 6455 modelled on the groups of the Autobahn testsuite, run against the broker's own
 * connections. Omits group 9 (speed) and groups 12 and 13 (compression, which is never negotiated).
 * `scripts/autobahn.ts` runs the original suite.
 *
 * The broker does not echo. Its replies show that a message arrived complete: a protocol `ping`, padded with as much
 * whitespace as a case needs (JSON), is answered with a pong, and a `send` with an excessive lifetime (binary) with a
 * `nack`. A valid message that is not a protocol frame is answered with 4400, which shows that the message itself was
 * read.
 */
import { encode, type Form } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/std'
import { envelopeTo, maskedFrame, sendFrame } from './wire.ts'

export interface ConformanceCase {
  /** The number of the same Autobahn case, if there is one. */
  readonly id: string
  readonly says: string
  readonly form: Form
  /** The bytes as sent on the socket. */
  readonly parts: readonly Uint8Array[]
  readonly isDripped: boolean
  /** The close code, or the replies: pong payloads in quotes, then frame types. */
  readonly answer: string
}

const FIN = 0x80
const [CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG] = [0, 1, 2, 8, 9, 10]
const bytesOf = (text: string) => Buffer.from(text)

/** Returns a frame with this first byte. */
function raw(first: number, payload: string | Uint8Array = ''): Uint8Array {
  const frame = maskedFrame(0, typeof payload === 'string' ? bytesOf(payload) : payload)
  frame[0] = first
  return frame
}
const text = (payload: string | Uint8Array) => raw(FIN | TEXT, payload)
const binary = (payload: string | Uint8Array) => raw(FIN | BINARY, payload)
const ping = (payload: string | Uint8Array = '') => raw(FIN | PING, payload)
const pong = (payload: string | Uint8Array = '') => raw(FIN | PONG, payload)
const close = (code?: number, reason: string | Uint8Array = '') => {
  const head = code === undefined ? [] : [code >> 8, code & 0xff]
  return raw(FIN | CLOSE, Buffer.concat([Uint8Array.from(head), Buffer.from(reason as Uint8Array)]))
}

/** Only some frames may be this large. An empty `send` is read completely and refused as malformed. */
const largeText = (size: number): string => '{"type":"send","items":[]}'.padEnd(size)
const padded = (bytes = 0) => '{"type":"ping","ref":7}'.padEnd(bytes)
/** Returns a `send` of this length, whose excessive lifetime is refused first. */
function sendOf(bytes: number): Uint8Array {
  const item = envelopeTo('ab'.repeat(32) as PeerKey, { ttlSeconds: 0xffffffff, envelope: new Uint8Array(bytes - 61) })
  return encode('binary', sendFrame(item)) as Uint8Array
}
const fragments = (payload: string, bytes: number): Uint8Array[] => {
  const pieces = payload.match(new RegExp(`.{1,${bytes}}`, 'gs'))!
  return pieces.map((piece, i) => raw((i === pieces.length - 1 ? FIN : 0) | (i === 0 ? TEXT : CONTINUATION), piece))
}
const WHOLE = padded()
const [HALF, REST] = [WHOLE.slice(0, 10), WHOLE.slice(10)]
const begun = raw(TEXT, HALF)
const ended = raw(FIN | CONTINUATION, REST)

type Row = readonly [id: string, says: string, parts: readonly Uint8Array[], answer: string]
const cases = (form: Form, rows: readonly Row[], isDripped = false): ConformanceCase[] =>
  rows.map(([id, says, parts, answer]) => ({ id, says, form, parts, isDripped, answer }))

const framing = [
  ...cases('json', [
    ['1.1.1', 'an empty text: a message but not a frame', [text('')], '4400'],
    ...[125, 126, 127, 128].map(
      (size, i) => [`1.1.${i + 2}`, `a text of ${size} bytes`, [text(padded(size))], 'pong'] as const,
    ),
    ...[65_535, 65_536].map(
      (size, i) => [`1.1.${i + 6}`, `a text of ${size} bytes`, [text(largeText(size))], '4400'] as const,
    ),
  ]),
  ...cases('json', [['1.1.8', 'a text of 200 bytes', [text(padded(200))], 'pong']], true),
  ...cases('binary', [
    ['1.2.1', 'an empty binary message: a message but not a frame', [binary('')], '4400'],
    ...[125, 126, 127, 128, 65_535, 65_536].map(
      (size, i) => [`1.2.${i + 2}`, `a binary message of ${size} bytes`, [binary(sendOf(size))], 'nack'] as const,
    ),
  ]),
  ...cases('binary', [['1.2.8', 'a binary message of 200 bytes', [binary(sendOf(200))], 'nack']], true),
]

const pings = [
  ...cases('json', [
    ['2.1', 'a ping without a payload', [ping()], '""'],
    ['2.2', 'a ping with a text', [ping('hello')], '"hello"'],
    ['2.3', 'a ping with bytes that are not UTF-8', [ping(Uint8Array.of(0, 255, 254))], '"\0\xff\xfe"'],
    ['2.4', 'a ping of 125 bytes', [ping('x'.repeat(125))], `"${'x'.repeat(125)}"`],
    ['2.5', 'a ping of 126 bytes', [ping('x'.repeat(126))], '1002'],
    ['2.7', 'an unsolicited pong', [pong()], ''],
    ['2.8', 'a pong with a payload', [pong('hello')], ''],
    ['2.9', 'an unsolicited pong, then a ping', [pong('a'), ping('b')], '"b"'],
    ['2.10', 'ten pings at once', Array.from({ length: 10 }, (_, i) => ping(`${i}`)), '"0" "1" "2" "3" "4" "5" "6" "7" "8" "9"'],
  ]),
  ...cases('json', [
    ['2.6', 'a ping of 125 bytes', [ping('x'.repeat(125))], `"${'x'.repeat(125)}"`],
    ['2.11', 'three pings', [ping('a'), ping('b'), ping('c')], '"a" "b" "c"'],
  ], true),
] // biome-ignore format: a table

/** No extension is negotiated, so all reserved bits are invalid. */
const reserved = cases('json', [
  ['3.1', 'bit 3 on a text', [raw(FIN | 0x10 | TEXT, WHOLE)], '1002'],
  ['3.2', 'a valid text, then bit 2 on another, then a ping', [text(WHOLE), raw(FIN | 0x20 | TEXT, WHOLE), ping()], '1002'],
  ['3.4', 'bit 1 on a text', [raw(FIN | 0x40 | TEXT, WHOLE)], '1002'],
  ['3.5', 'bits 1 and 3 on a binary message', [raw(FIN | 0x50 | BINARY, WHOLE)], '1002'],
  ['3.6', 'bits 1 and 2 on a ping', [raw(FIN | 0x60 | PING)], '1002'],
  ['3.7', 'all three on a close', [raw(FIN | 0x70 | CLOSE)], '1002'],
]) // biome-ignore format: a table

const opcodes = cases('json', [
  ...[3, 4, 5, 6, 7].map((opcode, i) => [`4.1.${i + 1}`, `the opcode ${opcode}`, [raw(FIN | opcode, i % 2 ? 'x' : '')], '1002'] as const),
  ...[11, 12, 13, 14, 15].map((opcode, i) => [`4.2.${i + 1}`, `the opcode ${opcode}`, [raw(FIN | opcode, i % 2 ? 'x' : '')], '1002'] as const),
]) // biome-ignore format: a table

const fragmentation = [
  ...cases('json', [
    ['5.1', 'a ping in two fragments', [raw(PING, 'a'), raw(FIN | CONTINUATION, 'b')], '1002'],
    ['5.2', 'a pong in two fragments', [raw(PONG, 'a'), raw(FIN | CONTINUATION, 'b')], '1002'],
    ['5.3', 'a text in two fragments', [begun, ended], 'pong'],
    ['5.6', 'a ping between two fragments', [begun, ping('b'), ended], '"b" pong'],
    ['5.9', 'the end of a message that never began', [raw(FIN | CONTINUATION, WHOLE), text(WHOLE)], '1002'],
    ['5.10', 'the middle of a message that never began', [raw(CONTINUATION, WHOLE), text(WHOLE)], '1002'],
    ['5.15', 'a continuation after the end', [begun, ended, raw(CONTINUATION, 'x')], '1002'],
    ['5.18', 'a second start of a message', [begun, text(WHOLE)], '1002'],
    ['5.19', 'five fragments with pings between them', [...fragments(WHOLE, 5).flatMap((part, i) => [ping(`${i}`), part])], '"0" "1" "2" "3" "4" pong'],
    ['10.1.1', 'a text of 65,536 bytes in fragments of 1,300', fragments(largeText(65_536), 1300), '4400'],
  ]),
  ...cases('json', [
    ['5.5', 'a text in two fragments', [begun, ended], 'pong'],
    ['5.8', 'a ping between two fragments', [begun, ping('b'), ended], '"b" pong'],
  ], true),
  ...cases('binary', [
    ['10.1', 'a binary message that ends as a text', [raw(BINARY, sendOf(200)), raw(FIN | TEXT, 'x')], '1002'],
  ]),
] // biome-ignore format: a table

/** Valid UTF-8 that no frame contains, because frames are ASCII. */
const GOOD_UTF8 = ['κόσμε', '\u{10ffff}', '\ufeff', '\ufffd', '\uffff', 'é\u0301']
const BAD_UTF8 = {
  'a lone continuation byte': [0x80],
  'a lead byte without its continuation': [0xc3],
  'an invalid continuation byte': [0xc3, 0x28],
  'an overlong two-byte form': [0xc0, 0xaf],
  'an overlong three-byte form': [0xe0, 0x80, 0xaf],
  'a surrogate': [0xed, 0xa0, 0x80],
  'a code point beyond the last': [0xf4, 0x90, 0x80, 0x80],
  'a byte that never occurs in UTF-8': [0xfe],
}
const utf8 = cases('json', [
  ...GOOD_UTF8.map((good, i) => [`6.2.${i + 1}`, `a good text, ${Buffer.from(good).toString('hex')}`, [text(good)], '4400'] as const),
  ...Object.entries(BAD_UTF8).map(([name, bytes], i) => [`6.3.${i + 1}`, name, [text(Uint8Array.from(bytes))], '1007'] as const),
  ['6.4.1', 'a code point beyond the last, split over two fragments', [raw(TEXT, Uint8Array.of(0xf4)), raw(FIN | CONTINUATION, Uint8Array.of(0x90, 0x80, 0x80))], '1007'],
  ['6.2.9', 'a valid letter split over two fragments', [raw(TEXT, Uint8Array.of(0xc3)), raw(FIN | CONTINUATION, Uint8Array.of(0xa9))], '4400'],
]) // biome-ignore format: a table

const GOOD_CODES = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]
const BAD_CODES = [0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65_535]
const closes = cases('json', [
  ['7.1.1', 'a message, then a close', [text(WHOLE), close(1000)], '1000'],
  ['7.1.2', 'two closes', [close(1000), close(1000)], '1000'],
  ['7.1.3', 'a ping after a close', [close(1000), ping('b')], '1000'],
  ['7.1.4', 'a message after a close', [close(1000), text(WHOLE)], '1000'],
  ['7.1.5', 'a close between two fragments', [begun, close(1000), ended], '1000'],
  ['7.3.1', 'a close without a code: the reply has none either', [close()], '1005'],
  ['7.3.2', 'a close of one byte', [raw(FIN | CLOSE, Uint8Array.of(3))], '1002'],
  ['7.3.4', 'a close with a reason', [close(1000, 'done')], '1000'],
  ['7.3.5', 'a close with a reason of 123 bytes', [close(1000, 'x'.repeat(123))], '1000'],
  ['7.3.6', 'a close with a reason of 124 bytes', [close(1000, 'x'.repeat(124))], '1002'],
  ['7.5.1', 'a close whose reason is not UTF-8', [close(1000, Uint8Array.of(0xce, 0xed, 0xa0, 0x80))], '1007'],
  ...GOOD_CODES.map((code, i) => [`7.7.${i + 1}`, `the close code ${code}`, [close(code)], String(code)] as const),
  ...BAD_CODES.map((code, i) => [`7.9.${i + 1}`, `the close code ${code}`, [close(code)], '1002'] as const),
]) // biome-ignore format: a table

/** Cases that the suite leaves to the broker. */
const ownRules = [
  ...cases('json', [['own.1', 'a binary message on a text connection', [binary(WHOLE)], '1003']]),
  ...cases('binary', [
    ['own.2', 'a text on a binary connection', [text(WHOLE)], '1003'],
    ['own.3', 'an unmasked frame', [Uint8Array.of(0x82, 1, 22)], '1002'],
  ]),
]

export const conformanceCases: readonly ConformanceCase[] = [
  ...framing, ...pings, ...reserved, ...opcodes, ...fragmentation, ...utf8, ...closes, ...ownRules,
] // biome-ignore format: a list
