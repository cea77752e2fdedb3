import { type EnvelopeId, fromHex, type GroupId, toHex } from '@sealpost/std'
import * as fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import { hash256, openBody, openEnvelope, ready, Sealer, sealBody, sealEnvelope, TICKET_BYTES } from '../index.ts'
import { sodium } from '../sodium.ts'
import { correspondent, MESH, peerNumber, readVector } from '../test/fixtures.ts'
import { sealBodyWith } from './envelope-memory.ts'

beforeAll(ready)

const ID = '019b76da80007000800000000000000a' as EnvelopeId
const text = (body: Uint8Array | null) => body && new TextDecoder().decode(body)
const bytes = (said: string) => new TextEncoder().encode(said)

test('a sealed body opens with its ticket', () => {
  return fc.assert(
    fc.property(fc.uint8Array({ maxLength: 5_000 }), (body) => {
      const sealed = sealBody(body)
      expect(sealed.bytes.length).toBe(body.length + 40)
      expect(sealed.bodyId).toBe(toHex(hash256(sealed.bytes)))
      expect(toHex(openBody(sealed.bytes, sealed.ticket)!)).toBe(toHex(body))
    }),
  )
})

test('a changed body or ticket opens nothing', () => {
  const { bytes: sealed, ticket } = sealBody(bytes('to all of you'))
  const flipped = (from: Uint8Array, at: number) => from.map((byte, i) => (i === at ? byte ^ 1 : byte))
  for (let at = 0; at < sealed.length; at++) expect(openBody(flipped(sealed, at), ticket)).toBe(null)
  for (let at = 0; at < ticket.length; at++) expect(openBody(sealed, flipped(ticket, at))).toBe(null)
  expect(openBody(sealed, ticket.subarray(1))).toBe(null)
  expect(openBody(new Uint8Array(39), ticket)).toBe(null)
})

test("a member with the key and a hostile broker cannot replace the body in a third member's envelope", () => {
  const [ann, mallory, bob] = [peerNumber(1), peerNumber(2), peerNumber(3)]
  const sealerOf = (identity: typeof ann) => new Sealer({ identity, meshId: MESH })
  const note = { group: 'd0'.repeat(16) as GroupId, groupEpoch: 4 }
  const real = sealBody(bytes('meet at noon'))
  const to = (identity: typeof ann) =>
    sealEnvelope(sealerOf(ann), {
      ...{ to: correspondent(identity), envelopeId: ID, stream: null, sentAtMs: 0, note, body: real.ticket },
    })
  const expected = { from: correspondent(ann), envelopeId: ID }
  const atMallory = openEnvelope(sealerOf(mallory), to(mallory), expected)
  if (!atMallory.ok) throw new Error(atMallory.reason)
  const key = atMallory.body.subarray(0, 32)
  expect(text(openBody(real.bytes, atMallory.body))).toBe('meet at noon')
  // Mallory seals another body under the same key, and the broker pushes it with Bob's envelope.
  const forged = sealBodyWith(bytes('meet at midnight'), key, real.bytes.slice(0, 24))
  const atBob = openEnvelope(sealerOf(bob), to(bob), expected)
  if (!atBob.ok) throw new Error(atBob.reason)
  expect(atBob.note).toEqual(note)
  expect(openBody(forged.bytes, atBob.body)).toBe(null)
  expect(text(openBody(real.bytes, atBob.body))).toBe('meet at noon')
  // The key alone would open the forged body; only the hash check rejects it.
  expect(text(sodium.crypto_secretbox_open_easy(forged.bytes.slice(24), forged.bytes.slice(0, 24), key))).toBe(
    'meet at midnight',
  )
  // Mallory's own envelope to Bob is from Mallory, not from Ann.
  const own = sealEnvelope(sealerOf(mallory), {
    ...{ to: correspondent(bob), envelopeId: ID, stream: null, sentAtMs: 0, note, body: forged.ticket },
  })
  expect(openEnvelope(sealerOf(bob), own, expected)).toMatchObject({ ok: false })
})

test('the vector', () => {
  const { body } = readVector('group.json')
  const sealed = sealBodyWith(bytes(body.text), fromHex(body.contentKey), fromHex(body.nonce))
  expect(toHex(sealed.bytes)).toBe(body.sealed)
  expect(sealed.bodyId).toBe(body.bodyId)
  expect(toHex(sealed.ticket)).toBe(body.ticket)
  expect(sealed.ticket.length).toBe(TICKET_BYTES)
  expect(text(openBody(fromHex(body.sealed), fromHex(body.ticket)))).toBe(body.text)
})
