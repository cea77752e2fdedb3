import { fromHex, toHex } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import {
  type EnrolmentFields,
  ready,
  signAsClient,
  signEnrolment,
  signingKeysFromSeed,
  type Transcript,
  verifyClient,
  verifyEnrolment,
} from '../index.ts'
import { readVector } from '../test/fixtures.ts'

beforeAll(ready)

function world() {
  const { seeds, transcript, keyBinding } = readVector('handshake.json')
  const { bytes, enrolment } = readVector('invite.json')
  const { serverNonce, clientNonce, connectionId } = transcript
  const blobs = { serverNonce: fromHex(serverNonce), clientNonce: fromHex(clientNonce) }
  const asked: EnrolmentFields = {
    invite: fromHex(bytes),
    name: enrolment.name,
    bindingSignature: fromHex(keyBinding.signature),
  }
  return {
    keys: signingKeysFromSeed(fromHex(seeds.peerSigningSeed)),
    transcript: { ...transcript, ...blobs, connectionId: fromHex(connectionId), capabilities: [] } as Transcript,
    asked,
    frozen: enrolment as { name: string; signature: string },
  }
}

test('the frozen signature is reproduced and verifies', () => {
  const { keys, transcript, asked, frozen } = world()
  expect(toHex(signEnrolment(keys, transcript, asked))).toBe(frozen.signature)
  expect(verifyEnrolment(transcript, asked, fromHex(frozen.signature))).toBe(true)
})

test('it is good for one connection, invite, name and key binding', () => {
  const { keys, transcript, asked } = world()
  const signature = signEnrolment(keys, transcript, asked)
  const other = new Uint8Array(32)
  const changes: [Partial<Transcript>, Partial<EnrolmentFields>][] = [
    [{ serverNonce: other }, {}],
    [{ authority: 'other.example:443' }, {}],
    [{ versionsOffered: [1, 2] }, {}],
    [{}, { invite: asked.invite.map((byte, i) => (i === 0 ? byte ^ 1 : byte)) }],
    [{}, { name: `${asked.name}x` }],
    [{}, { bindingSignature: new Uint8Array(64) }],
  ]
  for (const [where, what] of changes)
    expect(verifyEnrolment({ ...transcript, ...where }, { ...asked, ...what }, signature)).toBe(false)
})

test('it is none of a session, and the signature of a session is none of an enrolment', () => {
  const { keys, transcript, asked } = world()
  expect(verifyClient(transcript, signEnrolment(keys, transcript, asked))).toBe(false)
  expect(verifyEnrolment(transcript, asked, signAsClient(keys, transcript))).toBe(false)
})

test('a transcript without an encoding verifies nothing', () => {
  const { transcript, asked } = world()
  expect(verifyEnrolment({ ...transcript, authority: 'a b' }, asked, new Uint8Array(64))).toBe(false)
})
