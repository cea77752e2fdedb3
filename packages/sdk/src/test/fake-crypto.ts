/**
 * Implements cryptography without secrets, for tests and the simulator. It behaves like real cryptography, is a
 * thousand times cheaper, and works from a seed. An envelope contains its box keys unencrypted; it "opens" if they
 * match.
 */
import { type Correspondent, NO_PREV, type Note, type StreamId, type Transcript } from '@sealpost/identity'
import type { KeyBindingEntry } from '@sealpost/protocol'
import { type EnvelopeId, fromHex, type MeshId, type Millis, type PeerKey, toHex } from '@sealpost/std'
import type { OpenVerdict } from '../inbox/message.ts'
import type { CryptoPort } from '../ports.ts'
import { fakeGroups } from './fake-groups.ts'

export interface FakePeer {
  readonly peerKey: PeerKey
  readonly meshId: MeshId
  readonly boxKey: Uint8Array
  /** Returns a number in [0, 1). */
  readonly random: () => number
}

interface FakeHeader {
  meshId: MeshId
  from: PeerKey
  to: PeerKey
  fromBox: string
  toBox: string
  envelopeId: EnvelopeId
  /** The id of the stream, if there is one. */
  streamId: StreamId | null
  seq: number
  prev: string
  sentAtMs: Millis
  note: Note | null
}

const encoder = new TextEncoder()
const decoder = new TextDecoder()

export function fakeCrypto(peer: FakePeer): CryptoPort {
  const randomHex = (bytes: number) => toHex(fakeBytes(bytes, peer.random))
  const own = toHex(peer.boxKey)
  return {
    signAuth: (transcript) => fakeSignature('client', transcript.peerKey, transcript),
    isBrokerProof: (transcript, clientSignature, proof) =>
      toHex(fakeProof(transcript, clientSignature)) === toHex(proof),
    checkCertificate: () => 'certificate_forged',
    checkBinding: (binding, { peer: expected, nowMs }) => {
      if (binding.peer !== expected) return 'binding_foreign'
      if (toHex(bindingSignature(binding)) !== toHex(binding.signature)) return 'binding_forged'
      return nowMs > binding.notAfterMs ? 'binding_expired' : 'ok'
    },
    seal: ({ to, envelopeId, stream, sentAtMs, note = null, body }) => {
      const { streamId, seq, prev } = stream ?? { streamId: null, seq: 0, prev: NO_PREV }
      const route = { meshId: peer.meshId, from: peer.peerKey, to: to.peerKey, fromBox: own, toBox: toHex(to.boxKey) }
      const header: FakeHeader = { ...route, envelopeId, streamId, seq, prev: toHex(prev), sentAtMs, note }
      const text = encoder.encode(JSON.stringify(header))
      return { envelope: join(text, body), headerHash: fnv(text, 16) }
    },
    open: (from, arrival) => openFake(peer, own, from, arrival),
    lacksBoxKey: ({ boxKey }) => toHex(boxKey) !== own,
    newNonce: () => fakeBytes(32, peer.random),
    newEnvelopeId: () => randomHex(16) as EnvelopeId,
    newStreamId: () => randomHex(16) as StreamId,
    groups: fakeGroups(
      peer,
      (length) => fakeBytes(length, peer.random),
      (bytes) => fnv(bytes, 32),
    ),
    users: NO_USERS,
  }
}

export function fakeProof(transcript: Transcript, clientSignature: Uint8Array): Uint8Array {
  return fakeSignature('broker', transcript.brokerKey + toHex(clientSignature), transcript)
}

export function isFakeClientSignature(transcript: Transcript, signature: Uint8Array): boolean {
  return toHex(fakeSignature('client', transcript.peerKey, transcript)) === toHex(signature)
}

export function fakeBinding(claim: Omit<KeyBindingEntry, 'signature'>): KeyBindingEntry {
  return { ...claim, signature: bindingSignature(claim) }
}

function fakeBytes(length: number, random: () => number): Uint8Array {
  return Uint8Array.from({ length }, () => Math.floor(random() * 256))
}

function openFake(
  peer: FakePeer,
  own: string,
  from: Correspondent,
  { envelopeId, envelope }: { envelopeId: EnvelopeId; envelope: Uint8Array },
): OpenVerdict {
  const end = envelope.indexOf(0)
  const header = end < 0 ? null : (JSON.parse(decoder.decode(envelope.subarray(0, end))) as FakeHeader)
  if (header?.fromBox !== toHex(from.boxKey) || header.toBox !== own) return { ok: false, reason: 'does_not_open' }
  if (header.meshId !== peer.meshId) return { ok: false, reason: 'foreign_mesh' }
  if (header.to !== peer.peerKey) return { ok: false, reason: 'wrong_recipient' }
  if (header.from !== from.peerKey) return { ok: false, reason: 'wrong_sender' }
  if (header.envelopeId !== envelopeId) return { ok: false, reason: 'wrong_envelope_id' }
  const { streamId, seq, prev, sentAtMs, note } = header
  const stream = streamId && { streamId, seq, prev: fromHex(prev) }
  const headerHash = stream && fnv(envelope.subarray(0, end), 16)
  return { ok: true, header: { stream, sentAtMs }, headerHash, note, body: envelope.slice(end + 1) }
}

function bindingSignature({ peer, boxKey, boxEpoch, notAfterMs }: Omit<KeyBindingEntry, 'signature'>): Uint8Array {
  return fnv(encoder.encode([peer, toHex(boxKey), boxEpoch, notAfterMs].join()), 64)
}

function fakeSignature(role: string, key: string, transcript: Transcript): Uint8Array {
  const fields = Object.values(transcript).map((field) => (field instanceof Uint8Array ? toHex(field) : String(field)))
  return fnv(encoder.encode([role, key, ...fields].join()), 64)
}

/** Returns an FNV-1a hash, repeated up to this length. */
function fnv(bytes: Uint8Array, length: number): Uint8Array {
  let hash = 0x811c9dc5
  for (const byte of bytes) hash = Math.imul(hash ^ byte, 0x01000193)
  const digest = new Uint8Array(length)
  for (let i = 0; i < length; i++) {
    hash = Math.imul(hash ^ i, 0x01000193)
    digest[i] = hash >>> 24
  }
  return digest
}

function join(header: Uint8Array, body: Uint8Array): Uint8Array {
  const whole = new Uint8Array(header.length + 1 + body.length)
  whole.set(header)
  whole.set(body, header.length + 1)
  return whole
}

/** A user crypto that refuses everything, for tests without devices. */
const NO_USERS: CryptoPort['users'] = {
  readDevice: () => null,
  readRemoval: () => null,
  readIdentityRotation: () => null,
}
