import { fromHex, toHex } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import {
  CONFIRMED_OUTCOMES,
  type Confirmation,
  contentHash,
  openEnvelope,
  readConfirmation,
  ready,
  Sealer,
  sealEnvelope,
  signConfirmation,
  signingKeysFromSeed,
} from '../index.ts'
import { bytes, correspondent, MESH, peerNumber, readVector } from '../test/fixtures.ts'

beforeAll(ready)

const bob = () => peerNumber(2).signing
const confirmation = (change: Partial<Confirmation> = {}): Confirmation => ({
  ...{ meshId: MESH, sender: peerNumber(1).signing.publicKey, recipient: bob().publicKey },
  ...{ envelopeId: '019b76da80007000800000000000000a' as Confirmation['envelopeId'], outcome: 'settled' },
  ...{ contentHash: contentHash(bytes('pay 5'), null), reason: '', atMs: 7 },
  ...change,
})

test('the bytes match the vector', () => {
  const { recipientSeed, body, attachment, confirmation: fields, bytes: signed } = readVector('confirmation.json')
  expect(contentHash(bytes(body), attachment)).toBe(fields.contentHash)
  expect(toHex(signConfirmation(signingKeysFromSeed(fromHex(recipientSeed)), fields))).toBe(signed)
  expect(readConfirmation(fromHex(signed))).toEqual(fields)
})

test('a confirmation is read back with each outcome', () => {
  for (const outcome of CONFIRMED_OUTCOMES) {
    const said = confirmation({ outcome, reason: outcome === 'rejected' ? 'not for me' : '' })
    expect(readConfirmation(signConfirmation(bob(), said))).toEqual(said)
  }
})

test('a confirmation with a changed, missing or additional byte is refused', () => {
  const signed = signConfirmation(bob(), confirmation({ outcome: 'rejected', reason: 'no' }))
  for (let at = 0; at < signed.length; at++) {
    const other = signed.slice()
    other[at]! ^= 1
    expect(readConfirmation(other)).toBe(null)
    expect(readConfirmation(signed.subarray(0, at))).toBe(null)
  }
  expect(readConfirmation(Uint8Array.of(...signed, 0))).toBe(null)
})

test('nobody signs for another recipient, and no reason is longer than 120 characters', () => {
  expect(() => signConfirmation(peerNumber(3).signing, confirmation())).toThrow()
  expect(() => signConfirmation(bob(), confirmation({ reason: 'x'.repeat(121) }))).toThrow()
  expect(() => signConfirmation(bob(), confirmation({ reason: 'é' }))).toThrow()
  const forged = signConfirmation({ ...peerNumber(3).signing, publicKey: bob().publicKey }, confirmation())
  expect(readConfirmation(forged)).toBe(null)
})

test('the content hash covers the body and the attachment, and where one ends', () => {
  const hashes = [
    contentHash(bytes('ab'), null),
    contentHash(bytes('a'), 'b'),
    contentHash(bytes(''), 'ab'),
    contentHash(bytes('a'), null),
  ]
  expect(new Set(hashes).size).toBe(hashes.length)
  expect(contentHash(bytes('ab'), '')).toBe(hashes[0])
})

test('a note asks for a confirmation, also with a value of a later version', () => {
  const [alice, recipient] = [peerNumber(1), peerNumber(2)]
  for (const note of [{ confirm: 'all' }, { confirm: 'whatever is next' }, { isConfirmation: true }]) {
    const { envelopeId } = confirmation()
    const draft = { to: correspondent(recipient), envelopeId, stream: null, sentAtMs: 1, note, body: bytes('x') }
    const envelope = sealEnvelope(new Sealer({ identity: alice, meshId: MESH }), draft)
    const opening = new Sealer({ identity: recipient, meshId: MESH })
    expect(openEnvelope(opening, envelope, { from: correspondent(alice), envelopeId })).toMatchObject({
      ok: true,
      note,
    })
  }
})
