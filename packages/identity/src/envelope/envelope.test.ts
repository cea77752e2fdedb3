import { type EnvelopeId, fromHex, type PeerKey, toHex } from '@sealpost/std'
import * as fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import {
  ENVELOPE_OVERHEAD_BYTES,
  generateBoxKeys,
  hash256,
  type Identity,
  identityFromSeeds,
  NO_PREV,
  type Note,
  openEnvelope,
  ready,
  Sealer,
  type StreamId,
  sealEnvelope,
  sealInStream,
} from '../index.ts'
import { rawSodium, sodium } from '../sodium.ts'
import { correspondent, MESH, OTHER_MESH, peerNumber, readVector, seeds } from '../test/fixtures.ts'
import { type EnvelopeDraft, sealWithNonce } from './envelope.ts'

beforeAll(ready)

const ID = '019b76da80007000800000000000000a' as EnvelopeId
const STREAM = '303132333435363738393a3b3c3d3e3f' as StreamId
const BODY = new TextEncoder().encode('the quick brown fox')

function world() {
  const [alice, bob, carol] = [peerNumber(1), peerNumber(2), peerNumber(3)]
  const draft: EnvelopeDraft = {
    to: correspondent(bob),
    envelopeId: ID,
    stream: { streamId: STREAM, seq: 1, prev: NO_PREV },
    sentAtMs: 1_767_225_600_123,
    body: BODY,
  }
  const sealer = new Sealer({ identity: alice, meshId: MESH })
  const opener = new Sealer({ identity: bob, meshId: MESH })
  return { alice, bob, carol, draft, sealer, opener, expected: { from: correspondent(alice), envelopeId: ID } }
}

const id = fc.uint8Array({ minLength: 16, maxLength: 16 }).map((bytes) => toHex(bytes) as EnvelopeId)
const noteArbitrary: fc.Arbitrary<Note> = fc.record(
  { thread: id, inReplyTo: id, isRequest: fc.boolean(), isError: fc.boolean(), isEphemeral: fc.boolean() },
  { requiredKeys: [] },
)

function refusal(result: ReturnType<typeof openEnvelope>) {
  return result.ok ? 'opened' : result.reason
}

test('a sealed envelope opens with its header and body', () => {
  const { sealer, opener, draft, expected } = world()
  const envelope = sealEnvelope(sealer, draft)
  expect(envelope.length).toBe(ENVELOPE_OVERHEAD_BYTES + BODY.length)
  const opened = openEnvelope(opener, envelope, expected)
  if (!opened.ok) throw new Error(opened.reason)
  expect(opened.body).toEqual(BODY)
  expect(opened.header.stream).toEqual(draft.stream)
  expect(opened.header).toMatchObject({ sentAtMs: draft.sentAtMs, boxEpoch: 1, paddingBytes: 0 })
})

test('every body and position survives a round trip, and the next prev is the hash of the header', () => {
  const { sealer, opener, draft, expected } = world()
  const position = fc.record({
    streamId: fc.constant(STREAM),
    seq: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
    prev: fc.uint8Array({ minLength: 16, maxLength: 16 }),
  })
  const fields = fc.record({
    body: fc.uint8Array({ maxLength: 9_000 }),
    stream: fc.option(position),
    sentAtMs: fc.maxSafeNat(),
    note: fc.option(noteArbitrary),
  })
  return fc.assert(
    fc.property(fields, (some) => {
      const sent = { ...draft, ...some }
      const { envelope, headerHash } = sealInStream(sealer, sent)
      const opened = openEnvelope(opener, envelope, expected)
      if (!opened.ok) throw new Error(opened.reason)
      expect(toHex(opened.body)).toBe(toHex(sent.body))
      expect(opened.header.stream).toEqual(sent.stream)
      expect(opened.header.sentAtMs).toBe(sent.sentAtMs)
      expect(opened.note).toEqual(sent.note)
      expect(toHex(headerHash)).toBe(toHex(hash256(plaintextOf(envelope).subarray(0, 157)).subarray(0, 16)))
    }),
  )
})

test("libsodium's own crypto_box creates and opens the same envelopes", () => {
  const { alice, bob, sealer, opener, draft, expected } = world()
  const envelope = sealEnvelope(sealer, draft)
  const [nonce, box] = [envelope.subarray(0, 24), envelope.subarray(24)]
  const plaintext = sodium.crypto_box_open_easy(box, nonce, alice.box.publicKey, bob.box.secretKey)
  expect(toHex(plaintext.subarray(157))).toBe(toHex(BODY))
  const again = sodium.crypto_box_easy(plaintext, nonce, bob.box.publicKey, alice.box.secretKey)
  expect(toHex(again)).toBe(toHex(box))
  expect(openEnvelope(opener, envelope, expected).ok).toBe(true)
})

test('each envelope has another nonce', () => {
  const { sealer, draft } = world()
  const nonces = Array.from({ length: 500 }, () => toHex(sealEnvelope(sealer, draft).subarray(0, 24)))
  expect(new Set(nonces).size).toBe(500)
})

test('a short envelope contains nothing of a longer one before it', () => {
  const { sealer, opener, draft, expected } = world()
  sealEnvelope(sealer, { ...draft, body: new Uint8Array(5_000).fill(0xee) })
  const padded = new Sealer({ identity: peerNumber(1), meshId: MESH, padTo: buckets(256) })
  const envelope = sealEnvelope(padded, { ...draft, stream: null })
  const plaintext = plaintextOf(envelope)
  expect(toHex(plaintext.subarray(101, 141))).toBe('00'.repeat(40))
  expect(toHex(plaintext.subarray(157 + BODY.length))).toBe('00'.repeat(256 - BODY.length))
  expect(openEnvelope(opener, envelope, expected).ok).toBe(true)
})

test('the memory grows for a large envelope, and still serves small ones', () => {
  const { sealer, opener, draft, expected } = world()
  const pages = rawSodium().HEAPU8.length
  const body = new Uint8Array(pages).fill(7)
  const opened = openEnvelope(opener, sealEnvelope(sealer, { ...draft, body }), expected)
  if (!opened.ok) throw new Error(opened.reason)
  expect(rawSodium().HEAPU8.length).toBeGreaterThan(pages)
  expect(Buffer.compare(opened.body, body)).toBe(0)
  expect(refusal(openEnvelope(opener, sealEnvelope(sealer, draft), expected))).toBe('opened')
})

test('an opened body does not change when later envelopes are sealed and opened', () => {
  const { sealer, opener, draft, expected } = world()
  const sealed = sealInStream(sealer, draft)
  const copy = { envelope: sealed.envelope.slice(), headerHash: sealed.headerHash.slice() }
  const opened = openEnvelope(opener, sealed.envelope, expected)
  if (!opened.ok) throw new Error(opened.reason)
  const stream = { streamId: 'ee'.repeat(16) as StreamId, seq: 9, prev: new Uint8Array(16).fill(0xee) }
  openEnvelope(opener, sealEnvelope(sealer, { ...draft, stream, body: new Uint8Array(99).fill(0xee) }), expected)
  expect(sealed).toEqual(copy)
  expect(opened.body).toEqual(BODY)
  expect(opened.header.stream).toEqual(draft.stream)
})

test.each([
  [0, 0],
  [1, 63],
  [63, 1],
  [64, 0],
  [65, 63],
])('a body of %i bytes is padded by %i to its bucket', (bodyBytes, paddingBytes) => {
  const { alice, opener, draft, expected } = world()
  const padded = new Sealer({ identity: alice, meshId: MESH, padTo: buckets(64) })
  const envelope = sealEnvelope(padded, { ...draft, body: new Uint8Array(bodyBytes).fill(1) })
  expect(envelope.length).toBe(ENVELOPE_OVERHEAD_BYTES + bodyBytes + paddingBytes)
  const opened = openEnvelope(opener, envelope, expected)
  if (!opened.ok) throw new Error(opened.reason)
  expect([opened.body.length, opened.header.paddingBytes]).toEqual([bodyBytes, paddingBytes])
})

test('an envelope does not open if any of its bits has changed', () => {
  const { sealer, opener, draft, expected } = world()
  const envelope = sealEnvelope(sealer, draft)
  for (let i = 0; i < envelope.length; i++) {
    const changed = envelope.slice()
    changed[i]! ^= 1 << (i % 8)
    expect(refusal(openEnvelope(opener, changed, expected))).toBe('does_not_open')
  }
})

test('a truncated envelope is refused at every length', () => {
  const { sealer, opener, draft, expected } = world()
  const envelope = sealEnvelope(sealer, draft)
  for (let length = 0; length < envelope.length; length++) {
    const reason = length < 40 ? 'malformed' : 'does_not_open'
    expect(refusal(openEnvelope(opener, envelope.subarray(0, length), expected))).toBe(reason)
  }
})

test("a reader's own envelope that returns as the other's is reflected", () => {
  const { bob, sealer, draft } = world()
  const envelope = sealEnvelope(sealer, draft)
  expect(refusal(openEnvelope(sealer, envelope, { from: correspondent(bob), envelopeId: ID }))).toBe('reflected')
})

test('an envelope to oneself is not reflected', () => {
  const { alice, sealer, draft } = world()
  const self = correspondent(alice)
  const envelope = sealEnvelope(sealer, { ...draft, to: self })
  expect(refusal(openEnvelope(sealer, envelope, { from: self, envelopeId: ID }))).toBe('opened')
})

test('an envelope of another mesh is foreign', () => {
  const { alice, opener, draft, expected } = world()
  const elsewhere = new Sealer({ identity: alice, meshId: OTHER_MESH })
  expect(refusal(openEnvelope(opener, sealEnvelope(elsewhere, draft), expected))).toBe('foreign_mesh')
})

test('an envelope under another id is refused', () => {
  const { sealer, opener, draft, expected } = world()
  const other = 'ff'.repeat(16) as EnvelopeId
  const result = openEnvelope(opener, sealEnvelope(sealer, draft), { ...expected, envelopeId: other })
  expect(refusal(result)).toBe('wrong_envelope_id')
})

test('an envelope with the wrong sender does not open', () => {
  const { carol, sealer, opener, draft } = world()
  const result = openEnvelope(opener, sealEnvelope(sealer, draft), { from: correspondent(carol), envelopeId: ID })
  expect(refusal(result)).toBe('does_not_open')
})

test('a header whose sender does not own the box key is refused', () => {
  const { alice, carol, opener, draft, expected } = world()
  const posing: Identity = { signing: carol.signing, box: alice.box }
  const envelope = sealEnvelope(new Sealer({ identity: posing, meshId: MESH }), draft)
  expect(refusal(openEnvelope(opener, envelope, expected))).toBe('wrong_sender')
})

test('a header with another recipient is refused, which prevents surreptitious forwarding', () => {
  const { bob, carol, sealer, opener, draft, expected } = world()
  const to = { ...correspondent(carol), boxKey: bob.box.publicKey }
  expect(refusal(openEnvelope(opener, sealEnvelope(sealer, { ...draft, to }), expected))).toBe('wrong_recipient')
})

const patch = (at: number, bytes: number[]) => (plaintext: Uint8Array) => {
  const patched = plaintext.slice()
  patched.set(bytes, at)
  return patched
}

const MALFORMED: Record<string, (plaintext: Uint8Array) => Uint8Array> = {
  'less than a header': (plaintext) => plaintext.subarray(0, 156),
  'an empty plaintext': () => new Uint8Array(0),
  'another magic': patch(3, [0x32]),
  'an unknown flag': patch(4, [5]),
  'a stream without its flag': patch(4, [0]),
  'a note that ends beyond the plaintext': patch(4, [3]),
  'a sequence number 0': patch(117, Array(8).fill(0)),
  'a sequence number beyond the safe integers': patch(117, [0, 0x20, 0, 0, 0, 0, 0, 0]),
  'a time beyond the safe integers': patch(145, [0, 0x20, 0, 0, 0, 0, 0, 0]),
  'more padding than plaintext': patch(156, [BODY.length + 1]),
}

test.each(Object.keys(MALFORMED))('a genuine box with %s is malformed', (name) => {
  const { sealer, opener, draft, expected } = world()
  const plaintext = plaintextOf(sealEnvelope(sealer, draft))
  expect(refusal(openEnvelope(opener, boxed(plaintext), expected))).toBe('opened')
  expect(refusal(openEnvelope(opener, boxed(MALFORMED[name]!(plaintext)), expected))).toBe('malformed')
})

/** Inserts a note before the body, and sets its flag. */
const withNote = (plaintext: Uint8Array, note: Uint8Array, length = note.length) =>
  Uint8Array.from([...patch(4, [3])(plaintext.slice(0, 157)), length >>> 8, length, ...note, ...BODY])

const NOTES: Record<string, string | number[]> = {
  'that is empty': '',
  'that is not JSON': '{',
  'that is a list': '[]',
  'that is null': 'null',
  'that is not UTF-8': [0x22, 0xff, 0x22],
  'whose thread is short': '{"thread":"ab"}',
  'whose thread is in capitals': JSON.stringify({ thread: 'AB'.repeat(16) }),
  'with a number in `inReplyTo`': '{"inReplyTo":1}',
  'with a text as a flag': '{"isRequest":"true"}',
  'with a flag that is null': '{"isError":null}',
}

test.each(Object.keys(NOTES))('a genuine box with a note %s is malformed', (name) => {
  const { sealer, opener, draft, expected } = world()
  const plaintext = plaintextOf(sealEnvelope(sealer, draft))
  const note = NOTES[name]!
  const bytes = typeof note === 'string' ? new TextEncoder().encode(note) : Uint8Array.from(note)
  expect(refusal(openEnvelope(opener, boxed(withNote(plaintext, bytes)), expected))).toBe('malformed')
})

test('unknown keys in a note are ignored, and a truncated note is malformed', () => {
  const { sealer, opener, draft, expected } = world()
  const plaintext = plaintextOf(sealEnvelope(sealer, draft))
  const note = new TextEncoder().encode('{"isRequest":true,"mood":"good"}')
  const opened = openEnvelope(opener, boxed(withNote(plaintext, note)), expected)
  expect(opened).toMatchObject({ ok: true, note: { isRequest: true }, body: BODY })
  if (opened.ok) expect(Object.keys(opened.note!)).toEqual(['isRequest'])
  for (const length of [note.length - 1, 0xffff])
    expect(refusal(openEnvelope(opener, boxed(withNote(plaintext, note, length)), expected))).toBe('malformed')
  expect(refusal(openEnvelope(opener, boxed(patch(4, [3])(plaintext.slice(0, 158))), expected))).toBe('malformed')
})

test('a note counts towards the padding', () => {
  const { alice, opener, draft, expected } = world()
  const padded = new Sealer({ identity: alice, meshId: MESH, padTo: buckets(64) })
  const opened = openEnvelope(opener, sealEnvelope(padded, { ...draft, note: { isRequest: true } }), expected)
  if (!opened.ok) throw new Error(opened.reason)
  const noteBytes = 2 + '{"isRequest":true}'.length
  expect(opened.header.paddingBytes).toBe(64 - noteBytes - BODY.length)
  expect(opened.body).toEqual(BODY)
})

test('after the recipient rotates its key, envelopes to the former key still open', () => {
  const { bob, sealer, draft, expected } = world()
  const rotated = { signing: bob.signing, box: generateBoxKeys(2) }
  const old = sealEnvelope(sealer, draft)
  const both = new Sealer({ identity: rotated, meshId: MESH, formerBoxKeys: [bob.box] })
  expect(refusal(openEnvelope(both, old, expected))).toBe('opened')
  expect(refusal(openEnvelope(both, sealEnvelope(sealer, { ...draft, to: correspondent(rotated) }), expected))).toBe(
    'opened',
  )
  expect(refusal(openEnvelope(new Sealer({ identity: rotated, meshId: MESH }), old, expected))).toBe('does_not_open')
})

test('a new box key of a correspondent replaces the cached shared key', () => {
  const { bob, sealer, draft, expected } = world()
  sealEnvelope(sealer, draft)
  const rotated = { signing: bob.signing, box: generateBoxKeys(2) }
  const envelope = sealEnvelope(sealer, { ...draft, to: correspondent(rotated) })
  expect(refusal(openEnvelope(new Sealer({ identity: rotated, meshId: MESH }), envelope, expected))).toBe('opened')
})

test('up to 17 box keys of a correspondent are cached, the current and former ones', () => {
  const { alice, opener } = world()
  const turns = Array.from({ length: 18 }, (_, n) => correspondent({ ...alice, box: generateBoxKeys(n + 2) }))
  const lines = turns.slice(1).map((turn) => opener.cacheOf(turn))
  expect(turns.slice(1).map((turn) => opener.cacheOf(turn))).toEqual(lines)
  opener.prepare(turns[1]!)
  expect(lines[0]!.sharedKeys[0]).not.toBeNull()
  opener.cacheOf(turns[0]!)
  expect(lines[0]!.sharedKeys[0]).toEqual(new Uint8Array(32)) // the first key was evicted and wiped
  expect(opener.correspondentCount).toBe(1)
})

test('more correspondents than the cache holds still work', () => {
  const { alice, draft, expected } = world()
  const sealer = new Sealer({ identity: alice, meshId: MESH, correspondentsMax: 2 })
  for (const n of [2, 3, 4, 2, 4, 3]) {
    const reader = peerNumber(n)
    const opener = new Sealer({ identity: reader, meshId: MESH })
    const envelope = sealEnvelope(sealer, { ...draft, to: correspondent(reader) })
    expect(refusal(openEnvelope(opener, envelope, expected))).toBe('opened')
  }
  expect(sealer.correspondentCount).toBe(2)
})

test('a box key of small order is refused when sealing, and opens nothing', () => {
  const { sealer, draft } = world()
  const to = { peerKey: 'ab'.repeat(32) as PeerKey, boxKey: new Uint8Array(32), boxEpoch: 1 }
  expect(() => sealEnvelope(sealer, { ...draft, to })).toThrow(expect.objectContaining({ code: 'box_key_unusable' }))
  const result = openEnvelope(sealer, new Uint8Array(300), { from: to, envelopeId: ID })
  expect(refusal(result)).toBe('does_not_open')
})

test('the frozen vectors are reproduced byte for byte', () => {
  const vector = readVector('envelope.json')
  const [sender, recipient] = [identityFromSeeds(seeds(vector.sender)), identityFromSeeds(seeds(vector.recipient))]
  const opener = new Sealer({ identity: recipient, meshId: vector.meshId })
  expect(vector.envelopes.length).toBeGreaterThan(2)
  for (const one of vector.envelopes) {
    const sealer = new Sealer({ identity: sender, meshId: vector.meshId, padTo: buckets(one.bucketBytes) })
    const stream = one.stream && { ...one.stream, prev: fromHex(one.stream.prev) }
    const draft = { ...one, to: correspondent(recipient), stream, body: fromHex(one.body) }
    const sealed = sealWithNonce(sealer, draft, fromHex(one.nonce))
    expect(toHex(sealed.envelope)).toBe(one.envelope)
    expect(toHex(sealed.headerHash)).toBe(one.headerHash)
    const opened = openEnvelope(opener, fromHex(one.envelope), {
      from: correspondent(sender),
      envelopeId: one.envelopeId,
    })
    if (!opened.ok) throw new Error(opened.reason)
    expect(opened.header.stream).toEqual(stream)
    expect(opened.note).toEqual(one.note ?? null)
    const [nonce, box] = [fromHex(one.envelope).subarray(0, 24), fromHex(one.envelope).subarray(24)]
    const plaintext = sodium.crypto_box_open_easy(box, nonce, sender.box.publicKey, recipient.box.secretKey)
    expect(toHex(plaintext.subarray(0, 157))).toBe(one.header)
  }
})

const buckets = (length: number) => (bytes: number) => Math.ceil(bytes / length) * length

/** Returns the plaintext of Alice's box for Bob. */
function plaintextOf(envelope: Uint8Array): Uint8Array {
  const { alice, bob } = world()
  const [nonce, box] = [envelope.subarray(0, 24), envelope.subarray(24)]
  return sodium.crypto_box_open_easy(box, nonce, alice.box.publicKey, bob.box.secretKey)
}

/** Seals any plaintext as a genuine box from Alice to Bob. */
function boxed(plaintext: Uint8Array): Uint8Array {
  const { alice, bob } = world()
  const nonce = new Uint8Array(24).fill(9)
  const box = sodium.crypto_box_easy(plaintext, nonce, bob.box.publicKey, alice.box.secretKey)
  return Uint8Array.from([...nonce, ...box])
}
