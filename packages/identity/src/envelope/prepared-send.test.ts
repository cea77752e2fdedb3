import { fromHex, toHex } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { type PreparedSend, readPreparedSend, ready, signingKeysFromSeed, signPreparedSend } from '../index.ts'
import { NativeSignatures } from '../native-signatures.ts'
import { MESH, peerNumber, readVector } from '../test/fixtures.ts'

beforeAll(ready)

const native = new NativeSignatures()

function world() {
  const [ada, ben] = [peerNumber(1).signing, peerNumber(2).signing]
  const send: PreparedSend = {
    ...{ meshId: MESH, sender: ada.publicKey, recipient: ben.publicKey, priority: 1, ttlSeconds: 3600, notBeforeMs: 0 },
    envelopeId: '019b76da80007000800000000000000a' as PreparedSend['envelopeId'],
    ...{ preparedAtMs: 1_767_225_600_000, expiresAtMs: 1_767_225_660_000 },
    terms: Uint8Array.of(1, 2, 3),
    envelope: new Uint8Array(60).fill(9),
  }
  return { ada, ben, send }
}

test('a prepared send returns its fields', () => {
  const { ada, send } = world()
  const bytes = signPreparedSend(ada, send)
  expect(readPreparedSend(bytes)).toEqual(send)
  expect(readPreparedSend(bytes, native)).toEqual(send)
  const plain = { ...send, terms: new Uint8Array(0) }
  expect(readPreparedSend(signPreparedSend(ada, plain))).toEqual(plain)
})

test('no changed, truncated or extended request is accepted', () => {
  const { ada, send } = world()
  const bytes = signPreparedSend(ada, send)
  for (let at = 0; at < bytes.length; at++) {
    const changed = bytes.slice()
    changed[at]! ^= 1 << (at % 8)
    expect(readPreparedSend(changed, native)).toBe(null)
    expect(readPreparedSend(bytes.subarray(0, at), native)).toBe(null)
  }
  expect(readPreparedSend(new Uint8Array([...bytes, 0]), native)).toBe(null)
})

test.each<[string, Partial<PreparedSend>]>([
  ['a lifetime of more than a day', { expiresAtMs: 1_767_225_600_000 + 86_400_001 }],
  ['an end at its beginning', { expiresAtMs: 1_767_225_600_000 }],
  ['an unknown priority', { priority: 3 }],
  ['an envelope that is too short', { envelope: new Uint8Array(39) }],
  ['a fraction of a second', { ttlSeconds: 0.5 }],
])('a request with %s can not be signed', (_, change) => {
  const { ada, send } = world()
  expect(() => signPreparedSend(ada, { ...send, ...change })).toThrow()
})

test('a sender signs only its own requests', () => {
  const { ben, send } = world()
  expect(() => signPreparedSend(ben, send)).toThrow('a sender signs its own request')
})

test('the vector is signed as written', () => {
  const { signingSeed, fields, bytes } = readVector('prepared.json')
  const send = { ...fields, terms: fromHex(fields.terms), envelope: fromHex(fields.envelope) }
  expect(toHex(signPreparedSend(signingKeysFromSeed(fromHex(signingSeed)), send))).toBe(bytes)
  expect(readPreparedSend(fromHex(bytes))).toEqual(send)
})
