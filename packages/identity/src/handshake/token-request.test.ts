import { fromHex } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import {
  ready,
  signAsClient,
  signingKeysFromSeed,
  signTokenRequest,
  type Transcript,
  verifyClient,
  verifyTokenRequest,
} from '../index.ts'
import { readVector } from '../test/fixtures.ts'

beforeAll(ready)

function world() {
  const { seeds, transcript } = readVector('handshake.json')
  const { serverNonce, clientNonce, connectionId } = transcript
  const blobs = { serverNonce: fromHex(serverNonce), clientNonce: fromHex(clientNonce) }
  return {
    keys: signingKeysFromSeed(fromHex(seeds.peerSigningSeed)),
    transcript: { ...transcript, ...blobs, connectionId: fromHex(connectionId), capabilities: [] } as Transcript,
  }
}

test('a token request is valid for one challenge and one lifetime', () => {
  const { keys, transcript } = world()
  const signature = signTokenRequest(keys, transcript, 3600)
  expect(verifyTokenRequest(transcript, 3600, signature)).toBe(true)
  expect(verifyTokenRequest(transcript, 3601, signature)).toBe(false)
  expect(verifyTokenRequest({ ...transcript, serverNonce: new Uint8Array(32) }, 3600, signature)).toBe(false)
  expect(verifyTokenRequest({ ...transcript, authority: 'other.example:443' }, 3600, signature)).toBe(false)
})

test('a token request is invalid for a session, and a session signature for a token request', () => {
  const { keys, transcript } = world()
  expect(verifyClient(transcript, signTokenRequest(keys, transcript, 3600))).toBe(false)
  expect(verifyTokenRequest(transcript, 3600, signAsClient(keys, transcript))).toBe(false)
})

test('a request without an encoding has no signature', () => {
  const { keys, transcript } = world()
  const signature = signTokenRequest(keys, transcript, 3600)
  expect(verifyTokenRequest(transcript, -1, signature)).toBe(false)
  expect(verifyTokenRequest({ ...transcript, version: 70_000 }, 3600, signature)).toBe(false)
})
