import type { EnvelopeId } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { NO_PREV, ready, Sealer, type StreamId } from '../index.ts'
import { bytes, correspondent, flipped, MESH, OTHER_MESH, peerNumber, text } from '../test/fixtures.ts'
import { openRatcheted, Prekeys, Ratchet, sealRatcheted, sodiumRatchetCrypto } from './index.ts'

beforeAll(ready)

const SCOPE = { meshId: MESH, priority: 1 }
const ID = '019b76da80007000800000000000000a' as EnvelopeId
const OTHER_ID = '019b76da80007000800000000000000b' as EnvelopeId

function world() {
  const [alice, bob] = [peerNumber(1), peerNumber(2)]
  const prekeys = new Prekeys()
  const terms = { identity: bob, meshId: MESH, nowMs: 0, notAfterMs: 1_000, keepFormerMs: 0, hasKem: false }
  const statement = prekeys.rotate(sodiumRatchetCrypto, terms)
  const [out, back] = [new Ratchet(SCOPE), new Ratchet(SCOPE)]
  out.agree({ own: alice, peer: correspondent(bob) }, { statement, oneTime: null }, 0)
  const sealer = new Sealer({ identity: alice, meshId: MESH, padTo: (length) => Math.ceil(length / 256) * 256 })
  const parties = { own: bob, ownBoxes: [bob.box], peers: [correspondent(alice)], prekeys }
  const opener = { sealer: new Sealer({ identity: bob, meshId: MESH }), ratchet: back, parties }
  const stream = { streamId: '30'.repeat(16) as StreamId, seq: 1, prev: NO_PREV }
  const draft = { to: correspondent(bob), envelopeId: ID, stream, sentAtMs: 7, body: bytes('hello') }
  return { alice, out, sealer, opener, draft, expected: { from: correspondent(alice), envelopeId: ID } }
}

test('a ratcheted envelope opens with its header, note and body, without its padding', () => {
  const { out, sealer, opener, draft, expected } = world()
  const note = { thread: 'ab'.repeat(16), isRequest: true }
  const { envelope, headerHash } = sealRatcheted(sealer, out, { ...draft, note }, 0)
  const opened = openRatcheted(opener, envelope, expected, 0)
  if (!opened.ok) throw new Error(opened.reason)
  expect(opened).toMatchObject({ note, headerHash, header: { stream: draft.stream, sentAtMs: 7 } })
  expect(text(opened.body)).toBe('hello')
  opener.ratchet.settle(opened.place)
  expect(openRatcheted(opener, envelope, expected, 0)).toEqual({ ok: false, reason: 'settled', news: [] })
})

test('a ratcheted envelope is refused under another id or mesh, and still opens afterwards', () => {
  const { alice, out, sealer, opener, draft, expected } = world()
  const { envelope } = sealRatcheted(sealer, out, draft, 0)
  const moved = { ...expected, envelopeId: OTHER_ID }
  expect(openRatcheted(opener, envelope, moved, 0)).toMatchObject({ ok: false, reason: 'wrong_envelope_id' })
  expect(openRatcheted(opener, flipped(envelope, 90), expected, 0)).toMatchObject({ reason: 'does_not_open' })
  const foreign = new Sealer({ identity: alice, meshId: OTHER_MESH })
  const { envelope: other } = sealRatcheted(foreign, out, { ...draft, envelopeId: OTHER_ID }, 0)
  expect(openRatcheted(opener, other, moved, 0)).toMatchObject({ ok: false, reason: 'foreign_mesh' })
  expect(openRatcheted(opener, envelope, expected, 0)).toMatchObject({ ok: true })
})
