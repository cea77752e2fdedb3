/** H19 to H32: input from members that is not a valid WebSocket frame, message or protocol frame. */
import { encode, FRAME_BYTES_MAX, UNPROVEN_FRAME_BYTES_MAX } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/std'
import { type Arena, below, belowText, closing, early, hostileRows, inBinary, inJson, MARK } from './hostile.ts'
import { authFrame, envelopeTo, maskedFrame, sendFrame, WireClient } from './wire.ts'

const FIN = 0x80
/** Returns a WebSocket frame with this first byte. */
const raw = (first: number, payload: Uint8Array = new Uint8Array()): Uint8Array => {
  const frame = maskedFrame(0, payload)
  frame[0] = first
  return frame
}
const close = (...payload: number[]) => raw(FIN | 8, Uint8Array.from(payload))
const sendBytes = () => encode('binary', sendFrame(envelopeTo('ab'.repeat(32) as PeerKey))) as Uint8Array
const half = () => new Uint8Array(FRAME_BYTES_MAX / 2)

export const frameRows = hostileRows([
  ['H19', 'an unmasked frame', below('810141'), '1002'],
  ['H19', 'a reserved bit without an extension', below('c28000000000'), '1002'],
  ['H19', 'a reserved opcode', below('838000000000'), '1002'],
  ['H19', 'a control frame in fragments', below('098000000000'), '1002'],
  ['H19', 'a control frame of 126 bytes', below(raw(FIN | 9, new Uint8Array(126))), '1002'],
  ['H19', 'a continuation without a message', below(raw(FIN | 0, Buffer.from(MARK))), '1002'],
  ['H19', 'a message inside another', below(raw(2, Uint8Array.of(1)), raw(FIN | 2, Uint8Array.of(1))), '1002'],
  ['H20', 'a text that is not UTF-8', belowText(raw(FIN | 1, Uint8Array.of(0xc3, 0x28))), '1007'],
  ['H20', 'an encoded surrogate', belowText(raw(FIN | 1, Uint8Array.of(0xed, 0xa0, 0x80))), '1007'],
  ['H20', 'a close reason that is not UTF-8', below(close(3, 0xe8, 0xc3, 0x28)), '1007'],
  ['H21', 'the close code 999', below(close(3, 0xe7)), '1002'],
  ['H21', 'the close code 1005', below(close(3, 0xed)), '1002'],
  ['H21', 'the close code 5000', below(close(0x13, 0x88)), '1002'],
  ['H21', 'a close of one byte', below(close(3)), '1002'],
  ['H22', 'an announced length of 2^40 bytes', below('82ff000001000000000000000000'), '1009'],
  ['H22', 'an announced length of 2^63 bytes', below('82ff800000000000000000000000'), '1009'],
  ['H23', 'a message over the limit', inBinary(new Uint8Array(FRAME_BYTES_MAX + 1)), '1009'],
  ['H23', 'fragments whose total exceeds the limit', below(raw(2, half()), raw(0, half()), raw(0, half())), '1009'],
  ['H24', '10,000 empty fragments', below(raw(2), Buffer.concat(Array(10_000).fill(raw(0))), raw(FIN | 0)), '4400 frame_malformed'],
  ['H25', '1,000 pings at once', below(Buffer.concat(Array(1000).fill(raw(FIN | 9, Buffer.from(MARK))))), '4429 rate_exceeded'],
  ['H25', '1,000 pongs at once', below(Buffer.concat(Array(1000).fill(raw(FIN | 10)))), '4429 rate_exceeded'],
  ['H28', '200,000 opening brackets', inJson('['.repeat(200_000)), '4400 frame_malformed'],
  ['H28', 'deep nesting in place of a key', inJson(`{"type":"ping","ref":${'['.repeat(50_000)}${']'.repeat(50_000)}}`), '4400 frame_malformed'],
  ['H28', 'ten brackets before a key is proven', early((client) => client.sendWire('['.repeat(10)), 'json'), '4400 frame_malformed'],
  ['H23', 'a message over 16 KiB before a key is proven', early((client) => client.sendWire(new Uint8Array(UNPROVEN_FRAME_BYTES_MAX + 1))), '1009'],
  ['H29', 'a short frame with 250 KB of whitespace', inJson('{"type":"ping","ref":1}'.padEnd(250_000)), '1009'],
  ['H29', '5 MiB of small objects', inJson(`[${'{},'.repeat(1_700_000)}{}]`), '1009'],
  ['H29', 'as many small objects as fit', inJson(`[${'{},'.repeat(87_000)}{}]`), '4400 frame_malformed'],
  ['H30', 'a repeated key: the parsed value counts', keySaidTwice, 'pong 2'],
  ['H31', 'the key __proto__', inJson('{"type":"ping","ref":1,"__proto__":{"admin":true}}'), '4400 frame_malformed'],
  ['H31', 'the key constructor', inJson('{"type":"ping","ref":1,"constructor":{"prototype":{"admin":true}}}'), '4400 frame_malformed'],
  ['H31', 'a type of the prototype', inJson('{"type":"__proto__"}'), '4400 frame_malformed'],
  ['H32', 'an unknown type', inJson(`{"type":"${MARK}"}`), '4400 frame_malformed'],
  ['H32', 'an unknown frame number', inBinary(Uint8Array.of(99, 0)), '4400 frame_malformed'],
  ['H32', 'a frame that only the server sends', inBinary(encode('binary', { type: 'goaway', retryAfterMs: 1 })), '4400 frame_malformed'],
  ['H32', 'an unknown key', inJson(`{"type":"ping","ref":1,"${MARK}":1}`), '4400 frame_malformed'],
  ['H32', 'a missing key', inJson('{"type":"ping"}'), '4400 frame_malformed'],
  ['H32', 'no JSON', inJson(`{"type":"${MARK}"`), '4400 frame_malformed'],
  ['H32', 'a list', inJson('[]'), '4400 frame_malformed'],
  ['H32', 'a truncated frame', inBinary(sendBytes().slice(0, 50)), '4400 frame_malformed'],
  ['H32', 'trailing bytes after a frame', inBinary(Buffer.concat([sendBytes(), Uint8Array.of(0)])), '4400 frame_malformed'],
  ['H32', 'a count above the number of items', inBinary(Uint8Array.of(18, 0xff, 0xff, 0, 0)), '4400 frame_malformed'],
  ['H32', 'a frame without items', inBinary(Uint8Array.of(18, 0, 0)), '4400 frame_malformed'],
  ['H32', 'a second `auth`', secondAuth, '4400 frame_unexpected'],
  ['H32', 'a frame between `auth` and its reply', frameBehindAuth, '4400 frame_unexpected'],
]) // biome-ignore format: a table

async function keySaidTwice(arena: Arena): Promise<string> {
  const client = await arena.session('json')
  client.sendWire('{"type":"ping","ref":1,"ref":2}')
  const { ref } = await client.next('pong')
  client.destroy()
  return `pong ${ref}`
}

async function secondAuth(arena: Arena): Promise<string> {
  const place = await arena.world.enrol()
  const client = await WireClient.open(place.url)
  const auth = authFrame(place, await client.next('hello'))
  client.send(auth)
  await client.next('welcome')
  client.send(auth)
  return closing(client)
}

async function frameBehindAuth(arena: Arena): Promise<string> {
  const place = await arena.world.enrol()
  const client = await WireClient.open(place.url)
  client.sendTogether(authFrame(place, await client.next('hello')), sendFrame(envelopeTo(place)))
  return closing(client)
}
