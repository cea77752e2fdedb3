import { fromHex, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import * as fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import { lengthPrefixed } from '../byte-fields.ts'
import {
  type EnrolmentFields,
  generateSigningKeys,
  hash256,
  isExposed,
  normalizeAuthority,
  portOf,
  ready,
  type SigningKeys,
  signAsBroker,
  signAsClient,
  signEnrolment,
  signingKeysFromSeed,
  type Transcript,
  transcriptBytes,
  verifyBroker,
  verifyClient,
  verifyEnrolment,
} from '../index.ts'
import { readVector } from '../test/fixtures.ts'

beforeAll(ready)

interface World {
  vector: Record<string, string>
  transcript: Transcript
  peer: SigningKeys
  broker: SigningKeys
}

function frozen(): World {
  const vector = readVector('handshake.json')
  const { serverNonce, clientNonce, connectionId, ...rest } = vector.transcript
  const blobs = { serverNonce: fromHex(serverNonce), clientNonce: fromHex(clientNonce) }
  return {
    vector,
    transcript: { ...rest, ...blobs, connectionId: fromHex(connectionId) },
    peer: signingKeysFromSeed(fromHex(vector.seeds.peerSigningSeed)),
    broker: signingKeysFromSeed(fromHex(vector.seeds.brokerSigningSeed)),
  }
}

test('the frozen vector is reproduced byte for byte', () => {
  const { vector, transcript, peer, broker } = frozen()
  const clientSignature = signAsClient(peer, transcript)
  expect({
    clientTranscript: toHex(transcriptBytes('client', transcript)),
    clientTranscriptHash: toHex(hash256(transcriptBytes('client', transcript))),
    clientSignature: toHex(clientSignature),
    clientSignatureHash: toHex(hash256(clientSignature)),
    brokerTranscript: toHex(transcriptBytes('broker', transcript)),
    brokerTranscriptHash: toHex(hash256(transcriptBytes('broker', transcript))),
    brokerSignature: toHex(signAsBroker(broker, transcript, clientSignature)),
  }).toEqual(Object.fromEntries(Object.entries(vector).filter(([name]) => /^(client|broker)/.test(name))))
})

test('the frozen signatures verify', () => {
  const { vector, transcript } = frozen()
  const clientSignature = fromHex(vector.clientSignature!)
  expect(verifyClient(transcript, clientSignature)).toBe(true)
  expect(verifyBroker(transcript, clientSignature, fromHex(vector.brokerSignature!))).toBe(true)
})

const flipped = (bytes: Uint8Array) => bytes.map((byte, i) => (i === bytes.length - 1 ? byte ^ 1 : byte))

const CHANGES: Record<string, (t: Transcript) => Partial<Transcript>> = {
  version: () => ({ version: 2 }),
  'offered versions': () => ({ versionsOffered: [1, 2] }),
  'no offered version': () => ({ versionsOffered: [] }),
  host: () => ({ authority: 'other.example:443' }),
  port: () => ({ authority: 'broker.example:8443' }),
  'broker key': () => ({ brokerKey: generateSigningKeys().publicKey }),
  mesh: () => ({ meshId: 'b0'.repeat(16) as MeshId }),
  'peer key': () => ({ peerKey: generateSigningKeys().publicKey }),
  'server nonce': (t) => ({ serverNonce: flipped(t.serverNonce) }),
  'client nonce': (t) => ({ clientNonce: flipped(t.clientNonce) }),
  'both nonces exchanged': (t) => ({ serverNonce: t.clientNonce, clientNonce: t.serverNonce }),
  'connection id': (t) => ({ connectionId: flipped(t.connectionId) }),
  time: (t) => ({ issuedAtMs: t.issuedAtMs + 1 }),
  'one capability fewer': (t) => ({ capabilities: t.capabilities.slice(1) }),
  'another capability': (t) => ({ capabilities: [...t.capabilities, 'x'] }),
}

test.each(Object.keys(CHANGES))('both verifications fail with a different transcript: %s', (name) => {
  const { vector, transcript } = frozen()
  const changed = { ...transcript, ...CHANGES[name]!(transcript) }
  const clientSignature = fromHex(vector.clientSignature!)
  expect(verifyClient(changed, clientSignature)).toBe(false)
  expect(verifyBroker(changed, clientSignature, fromHex(vector.brokerSignature!))).toBe(false)
})

test('a signature is invalid in the other role', () => {
  const { transcript } = frozen()
  const keys = generateSigningKeys()
  const both = { ...transcript, peerKey: keys.publicKey, brokerKey: keys.publicKey }
  const clientSignature = signAsClient(keys, both)
  expect(verifyBroker(both, clientSignature, clientSignature)).toBe(false)
  expect(verifyClient(both, signAsBroker(keys, both, clientSignature))).toBe(false)
})

test("a broker's proof is valid for one client signature", () => {
  const { vector, transcript } = frozen()
  const other = flipped(fromHex(vector.clientSignature!))
  expect(verifyBroker(transcript, other, fromHex(vector.brokerSignature!))).toBe(false)
})

test('the order of capabilities does not matter', () => {
  const { vector, transcript } = frozen()
  const reversed = { ...transcript, capabilities: [...transcript.capabilities].reverse() }
  expect(verifyClient(reversed, fromHex(vector.clientSignature!))).toBe(true)
})

const UNENCODABLE: Record<string, Partial<Transcript>> = {
  'a short nonce': { serverNonce: new Uint8Array(31) },
  'a long connection id': { connectionId: new Uint8Array(17) },
  'an upper-case key': { brokerKey: 'AB'.repeat(32) as PeerKey },
  'a short mesh id': { meshId: 'ab' as MeshId },
  'a comma in a capability': { capabilities: ['a,b'] },
  'an empty capability': { capabilities: [''] },
  'a lone surrogate in the authority': { authority: 'h\ud800:1' },
  'a version that is no u16': { version: 65_536 },
  'a time beyond the safe integers': { issuedAtMs: 2 ** 53 },
}

test.each(Object.keys(UNENCODABLE))('the verifier refuses %s, and the signer throws', (name) => {
  const { vector, transcript, peer } = frozen()
  const broken = { ...transcript, ...UNENCODABLE[name]! }
  const clientSignature = fromHex(vector.clientSignature!)
  expect(verifyClient(broken, clientSignature)).toBe(false)
  expect(verifyBroker(broken, clientSignature, clientSignature)).toBe(false)
  expect(() => signAsClient(peer, broken)).toThrow('a transcript is well-formed')
})

test('moving bytes from one field to its neighbour changes the encoding', () => {
  const splits = fc.uint8Array({ minLength: 1, maxLength: 64 }).chain((bytes) => {
    const cut = fc.nat({ max: bytes.length })
    return fc.tuple(fc.constant(bytes), cut, cut)
  })
  const encode = (bytes: Uint8Array, cut: number) =>
    toHex(lengthPrefixed(bytes.subarray(0, cut))) + toHex(lengthPrefixed(bytes.subarray(cut)))
  return fc.assert(
    fc.property(splits, ([bytes, a, b]) => {
      fc.pre(a !== b)
      expect(encode(bytes, a)).not.toBe(encode(bytes, b))
    }),
  )
})

test('two transcripts have the same bytes only if their fields are equal', () => {
  const { transcript } = frozen()
  // Few values, so that field boundaries often coincide.
  const word = fc.stringMatching(/^[ab:]{1,3}$/)
  const some = fc.record({
    version: fc.constantFrom(1, 2),
    versionsOffered: fc.array(fc.constantFrom(1, 0x6162), { maxLength: 3 }),
    authority: word,
    capabilities: fc.array(word, { maxLength: 3 }).map((list) => list.sort()),
    issuedAtMs: fc.constantFrom(0, 1),
  })
  return fc.assert(
    fc.property(some, some, (a, b) => {
      const bytes = (fields: typeof a) => toHex(transcriptBytes('client', { ...transcript, ...fields }))
      expect(bytes(a) === bytes(b)).toBe(JSON.stringify(a) === JSON.stringify(b))
    }),
    { numRuns: 300 },
  )
})

test.each([
  ['wss://Broker.Example/v1/ws', 'broker.example:443'],
  ['ws://broker.example', 'broker.example:80'],
  ['https://broker.example:8443', 'broker.example:8443'],
  ['HTTP://broker.example:443', 'broker.example:443'],
  ['broker.example', 'broker.example:443'],
  ['localhost:7070', 'localhost:7070'],
  ['127.0.0.1:7070', '127.0.0.1:7070'],
  ['[::1]:7070', '[::1]:7070'],
  ['wss://[2001:DB8:0:0::1]', '[2001:db8::1]:443'],
  ['wss://bücher.example', 'xn--bcher-kva.example:443'],
])('%s is normalized to %s', (address, authority) => {
  expect(normalizeAuthority(address)).toBe(authority)
  expect(normalizeAuthority(authority)).toBe(authority)
})

test('a bare host gets the port of the given scheme', () => {
  expect(normalizeAuthority('broker.example', 'ws')).toBe('broker.example:80')
})

test.each(['', 'ftp://broker.example', 'wss://', 'broker.example:70000', 'wss://a b', '::1'])(
  '%s is refused',
  (address) => {
    expect(() => normalizeAuthority(address)).toThrow(expect.objectContaining({ code: 'authority_malformed' }))
  },
)

test('an address with a password is refused, and the error does not quote it', () => {
  expect(() => normalizeAuthority('wss://user:hunter2@broker.example')).toThrow(/^(?!.*hunter2)/)
})

test.each([
  ['ws://192.168.1.20:7450', true],
  ['http://broker.example/v1/ws', true],
  ['WS://broker.example', true],
  ['ws://0.0.0.0:7450', true],
  ['ws://localhost.example', true],
  ['ws://127.0.0.1.example', true],
  ['ws://[fe80::1]:7450', true],
  ['wss://broker.example', false],
  ['https://192.168.1.20', false],
  ['ws://localhost:7450', false],
  ['ws://Broker.LOCALHOST', false],
  ['ws://127.3.2.1:7450', false],
  ['ws://[::1]:7450', false],
])('%s is exposed: %s', (address, isSo) => {
  expect(isExposed(address)).toBe(isSo)
})

test.each([
  ['ws://127.0.0.1:7450', 7450],
  ['wss://broker.example:443/v1/ws', 443],
  ['ws://[::1]:80', 80],
])('%s has port %i', (address, port) => {
  expect(portOf(address)).toBe(port)
})

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

test('the frozen enrolment signature is reproduced and verifies', () => {
  const { keys, transcript, asked, frozen } = world()
  expect(toHex(signEnrolment(keys, transcript, asked))).toBe(frozen.signature)
  expect(verifyEnrolment(transcript, asked, fromHex(frozen.signature))).toBe(true)
})

test('an enrolment signature is valid for one connection, invite, name and key binding', () => {
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

test('an enrolment signature is invalid for a session, and a session signature for an enrolment', () => {
  const { keys, transcript, asked } = world()
  expect(verifyClient(transcript, signEnrolment(keys, transcript, asked))).toBe(false)
  expect(verifyEnrolment(transcript, asked, signAsClient(keys, transcript))).toBe(false)
})

test('a transcript without an encoding has no valid signature', () => {
  const { transcript, asked } = world()
  expect(verifyEnrolment({ ...transcript, authority: 'a b' }, asked, new Uint8Array(64))).toBe(false)
})
