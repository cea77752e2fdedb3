/**
 * Signs and reads prepared sends. A prepared send is one sealed envelope with the sender's signed request to store it,
 * which an application can keep until its own transaction commits. The signature replaces the connection over which the
 * envelope would otherwise arrive.
 *
 * Bytes, big-endian and without padding: u8 version (1), mesh id 16, sender 32, recipient 32, envelope id 16, u8 priority,
 * u32 ttlSeconds, u64 notBeforeMs, u64 preparedAtMs, u64 expiresAtMs, lp(terms), envelope, signature 64. Signed: context
 * `sealpost-prepared-send/1`, all fields before the envelope, BLAKE2b-256 of the envelope. `sealpost.send` in
 * packages/schema/migrations/0002_prepared_sends.sql reads the same offsets. Vector:
 * packages/protocol/vectors/prepared.json.
 */
import { assert, type EnvelopeId, fromHex, isHex, type MeshId, type Millis, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u32, u64 } from '../byte-fields.ts'
import { SIGNATURE_BYTES, type Signatures, type SigningKeys, sign, sodiumSignatures } from '../keys/keys.ts'
import { hash256 } from '../sodium.ts'

export interface PreparedSend {
  readonly meshId: MeshId
  readonly sender: PeerKey
  readonly recipient: PeerKey
  readonly envelopeId: EnvelopeId
  /** The index of the priority: 0 for `now`, 1 for `next`, 2 for `low`. */
  readonly priority: number
  /** 0 means the broker's default. */
  readonly ttlSeconds: number
  /** 0 means immediately. */
  readonly notBeforeMs: Millis
  readonly preparedAtMs: Millis
  /** The broker refuses the request from this time on, according to the clock of its database. */
  readonly expiresAtMs: Millis
  /** The sender's terms as the queue stores them; empty for neutral terms. */
  readonly terms: Uint8Array
  readonly envelope: Uint8Array
}

/** The longest time from `preparedAtMs` to `expiresAtMs`. */
export const PREPARED_LIFETIME_MS_MAX: Millis = 24 * 3600_000

const VERSION = 1
const PRIORITY_MAX = 2
/** A nonce and an authentication tag. */
const ENVELOPE_BYTES_MIN = 40
const SIGNED = context('sealpost-prepared-send/1')

/** @throws AssertionError unless every field is valid and `keys` are the sender's */
export function signPreparedSend(keys: SigningKeys, send: PreparedSend): Uint8Array {
  assert(isPreparedSend(send), 'a prepared send has ids, keys, a priority, times and an envelope')
  assert(send.sender === keys.publicKey, 'a sender signs its own request')
  const fields = fieldsOf(send)
  return concatBytes([fields, send.envelope, sign(keys, signedBytes(fields, send.envelope))])
}

/**
 * Reads a prepared send. Returns null unless its sender signed exactly these bytes. Never throws. Only one broker checks
 * it, so a faster implementation of signatures may do so.
 */
export function readPreparedSend(bytes: Uint8Array, signatures: Signatures = sodiumSignatures): PreparedSend | null {
  const reader = new FieldReader(bytes)
  if (reader.take(1)[0] !== VERSION) return null
  const fields = {
    meshId: toHex(reader.take(16)) as MeshId,
    sender: toHex(reader.take(32)) as PeerKey,
    recipient: toHex(reader.take(32)) as PeerKey,
    envelopeId: toHex(reader.take(16)) as EnvelopeId,
    priority: reader.take(1)[0] ?? -1,
    ttlSeconds: reader.u32(),
    notBeforeMs: reader.u64(),
    preparedAtMs: reader.u64(),
    expiresAtMs: reader.u64(),
    terms: reader.prefixed(),
  }
  const signedLength = FIXED_BYTES + fields.terms.length
  const envelope = reader.take(Math.max(0, bytes.length - signedLength - SIGNATURE_BYTES))
  const signature = reader.take(SIGNATURE_BYTES)
  const send: PreparedSend = { ...fields, envelope }
  if (!reader.isAtEnd || !isPreparedSend(send)) return null
  return signatures.verify(send.sender, signedBytes(bytes.subarray(0, signedLength), envelope), signature) ? send : null
}

/** The length of the fields before the terms, including the length of the terms. */
const FIXED_BYTES = 128

function fieldsOf(send: PreparedSend): Uint8Array {
  return concatBytes([
    Uint8Array.of(VERSION),
    ...[send.meshId, send.sender, send.recipient, send.envelopeId].map(fromHex),
    Uint8Array.of(send.priority),
    u32(send.ttlSeconds),
    u64(send.notBeforeMs),
    u64(send.preparedAtMs),
    u64(send.expiresAtMs),
    lengthPrefixed(send.terms),
  ])
}

const signedBytes = (fields: Uint8Array, envelope: Uint8Array): Uint8Array =>
  concatBytes([SIGNED, fields, hash256(envelope)])

function isPreparedSend(send: PreparedSend): boolean {
  const { preparedAtMs, expiresAtMs } = send
  return (
    isHex(send.meshId, 16) &&
    isHex(send.sender, 32) &&
    isHex(send.recipient, 32) &&
    isHex(send.envelopeId, 16) &&
    isUnsigned(send.priority, PRIORITY_MAX) &&
    isUnsigned(send.ttlSeconds, 0xffffffff) &&
    isUnsigned(send.notBeforeMs, Number.MAX_SAFE_INTEGER) &&
    isUnsigned(preparedAtMs, Number.MAX_SAFE_INTEGER) &&
    isUnsigned(expiresAtMs, Number.MAX_SAFE_INTEGER) &&
    expiresAtMs > preparedAtMs &&
    expiresAtMs - preparedAtMs <= PREPARED_LIFETIME_MS_MAX &&
    send.envelope.length >= ENVELOPE_BYTES_MIN
  )
}
