/**
 * Signs and reads confirmations: statements of a recipient about what it did with a message. A receipt is the broker's
 * word; a confirmation is the recipient's own, which a broker can withhold but not forge. It names the message by the
 * envelope id and the hash of its content, so it is proof of one message only.
 *
 * Bytes: lp(mesh id), lp(sender), lp(recipient), lp(envelope id), lp(content hash), u16 outcome, lp(reason), u64 atMs,
 * then the recipient's signature over the context `sealpost-confirmation/1` and these fields. Vector:
 * packages/protocol/vectors/confirmation.json.
 */
import { assert, type EnvelopeId, fromHex, isHex, type MeshId, type Millis, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u16, u32, u64, utf8 } from '../byte-fields.ts'
import { SIGNATURE_BYTES, type SigningKeys, sign, verify } from '../keys/keys.ts'
import { hash256 } from '../sodium.ts'

/** `read`: the application showed the message to its user or model, and has not ended it. */
export const CONFIRMED_OUTCOMES = ['read', 'settled', 'rejected'] as const
export type ConfirmedOutcome = (typeof CONFIRMED_OUTCOMES)[number]

export interface Confirmation {
  readonly meshId: MeshId
  /** The sender of the confirmed message. */
  readonly sender: PeerKey
  /** The peer that received the message, which signs. */
  readonly recipient: PeerKey
  readonly envelopeId: EnvelopeId
  /** 64 hex digits, from `contentHash`. */
  readonly contentHash: string
  readonly outcome: ConfirmedOutcome
  /** The recipient's reason for a rejection: up to 120 characters of printable ASCII. Otherwise empty. */
  readonly reason: string
  /** According to the recipient's clock, in ms since 1970. */
  readonly atMs: Millis
}

const REASON_MAX = 120
const CONTEXT = 'sealpost-confirmation/1'

/** Returns the hash of what the sender wrote: BLAKE2b-256 over u32 length of the body, body, attachment reference. */
export function contentHash(body: Uint8Array, attachment: string | null): string {
  return toHex(hash256(concatBytes([u32(body.length), body, utf8(attachment ?? '')])))
}

/** @throws AssertionError unless the confirmation is well formed and names the signer as its recipient */
export function signConfirmation(recipient: SigningKeys, confirmation: Confirmation): Uint8Array {
  assert(isConfirmation(confirmation), 'a confirmation has ids, keys, a hash, an outcome, a reason and a time')
  assert(confirmation.recipient === recipient.publicKey, 'the recipient signs its confirmation')
  const fields = fieldBytes(confirmation)
  return concatBytes([fields, sign(recipient, signedBytes(fields))])
}

/** Reads a confirmation. Returns null unless every field is valid and the recipient signed it. Never throws. */
export function readConfirmation(bytes: Uint8Array): Confirmation | null {
  const reader = new FieldReader(bytes)
  const hex = () => toHex(reader.prefixed())
  const [meshId, sender, recipient] = [hex() as MeshId, hex() as PeerKey, hex() as PeerKey]
  const [envelopeId, hash] = [hex() as EnvelopeId, hex()]
  const outcome = CONFIRMED_OUTCOMES[reader.u16()]
  const reason = String.fromCharCode(...reader.prefixed().subarray(0, REASON_MAX + 1))
  const confirmation = { meshId, sender, recipient, envelopeId, contentHash: hash, outcome, reason, atMs: reader.u64() }
  const signature = reader.take(SIGNATURE_BYTES)
  if (!reader.isAtEnd || !isConfirmation(confirmation)) return null
  return verify(recipient, signedBytes(fieldBytes(confirmation)), signature) ? confirmation : null
}

function isConfirmation(value: Omit<Confirmation, 'outcome'> & { outcome: unknown }): value is Confirmation {
  const { meshId, sender, recipient, envelopeId, contentHash: hash, outcome, reason, atMs } = value
  return (
    isHex(meshId, 16) &&
    isHex(sender, 32) &&
    isHex(recipient, 32) &&
    isHex(envelopeId, 16) &&
    isHex(hash, 32) &&
    CONFIRMED_OUTCOMES.includes(outcome as ConfirmedOutcome) &&
    /^[ -~]{0,120}$/.test(reason) &&
    isUnsigned(atMs, Number.MAX_SAFE_INTEGER)
  )
}

const signedBytes = (fields: Uint8Array): Uint8Array => concatBytes([context(CONTEXT), fields])

function fieldBytes(said: Confirmation): Uint8Array {
  const ids = [said.meshId, said.sender, said.recipient, said.envelopeId, said.contentHash]
  return concatBytes([
    ...ids.map((id) => lengthPrefixed(fromHex(id))),
    u16(CONFIRMED_OUTCOMES.indexOf(said.outcome)),
    lengthPrefixed(utf8(said.reason)),
    u64(said.atMs),
  ])
}
