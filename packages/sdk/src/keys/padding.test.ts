import { ENVELOPE_OVERHEAD_BYTES, generateIdentity, type Note, paddedLength, ready } from '@sealpost/identity'
import { BODY_BYTES_MAX } from '@sealpost/protocol'
import type { EnvelopeId, MeshId } from '@sealpost/std'
import * as fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import { sodiumCrypto } from './sodium-crypto.ts'

beforeAll(ready)

const meshId = '01'.repeat(16) as MeshId
const envelopeId = '0198c0de'.repeat(4) as EnvelopeId

function world(padding: boolean) {
  const [alice, bob] = [generateIdentity(), generateIdentity()]
  const from = { peerKey: alice.signing.publicKey, boxKey: alice.box.publicKey, boxEpoch: 1 }
  const to = { peerKey: bob.signing.publicKey, boxKey: bob.box.publicKey, boxEpoch: 1 }
  const sender = sodiumCrypto({ identity: alice, meshId, padding })
  const reader = sodiumCrypto({ identity: bob, meshId })
  const seal = (body: Uint8Array, note: Note | null = null) =>
    sender.seal({ to, envelopeId, stream: null, sentAtMs: 0, note, body }).envelope
  const open = (envelope: Uint8Array) => reader.open(from, { sender: from.peerKey, envelopeId, envelope })
  return { sender, to, seal, open, next: generateIdentity().box }
}

const NOTES: (Note | null)[] = [null, { isRequest: true }, { thread: 'ab'.repeat(16), isRequest: true }]
const contentOf = (envelope: Uint8Array): number => envelope.length - ENVELOPE_OVERHEAD_BYTES

test('envelopes of random bodies and notes have the length of a bucket, and open', () => {
  const { seal, open } = world(true)
  return fc.assert(
    fc.property(fc.nat(BODY_BYTES_MAX), fc.constantFrom(...NOTES), (bytes, note) => {
      const body = new Uint8Array(bytes).fill(7)
      const envelope = seal(body, note)
      expect(paddedLength(contentOf(envelope))).toBe(contentOf(envelope))
      const opened = open(envelope)
      expect(opened.ok && [opened.body.length, opened.note]).toEqual([bytes, note])
    }),
  )
})

test('short messages have one length, with and without a note', () => {
  const { seal } = world(true)
  const lengths = [0, 1, 100, 156].flatMap((bytes) => NOTES.map((note) => seal(new Uint8Array(bytes), note).length))
  expect(new Set(lengths)).toEqual(new Set([ENVELOPE_OVERHEAD_BYTES + 256]))
})

test('the box of a pool member is not padded', () => {
  const { sender, to } = world(true)
  const draft = { to, envelopeId, stream: null, sentAtMs: 0, note: null, body: new Uint8Array(64), isBox: true }
  expect(contentOf(sender.seal(draft).envelope)).toBe(64)
})

test('without padding, an envelope has the length of its contents', () => {
  const { seal } = world(false)
  for (const bytes of [0, 1, 257, BODY_BYTES_MAX]) expect(contentOf(seal(new Uint8Array(bytes)))).toBe(bytes)
})

test('padding never exceeds the limit of the broker, also after a rotation', () => {
  const { sender, seal, open, next } = world(true)
  sender.limitPadding?.(ENVELOPE_OVERHEAD_BYTES + 50_000)
  const lengths = () => [49_000, 49_999, 50_000, 50_001].map((bytes) => contentOf(seal(new Uint8Array(bytes))))
  expect(lengths()).toEqual([49_152, 50_000, 50_000, 50_001])
  expect(open(seal(new Uint8Array(50_000))).ok).toBe(true)
  sender.activate(next)
  expect(lengths()).toEqual([49_152, 50_000, 50_000, 50_001])
})

test('a body of the maximum length with a note fits into the default limit of a broker', () => {
  const { seal } = world(true)
  const note = { thread: 'ab'.repeat(16), inReplyTo: envelopeId, attachment: 'x'.repeat(700) }
  expect(seal(new Uint8Array(BODY_BYTES_MAX)).length).toBe(ENVELOPE_OVERHEAD_BYTES + BODY_BYTES_MAX)
  expect(seal(new Uint8Array(BODY_BYTES_MAX), note).length).toBeLessThanOrEqual(72 * 1024)
})
