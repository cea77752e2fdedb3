/**
 * Sealed envelopes: nonce 24, then `crypto_box` (mac 16, ciphertext) of inner header, body and padding. The broker routes
 * by what stands outside; the recipient believes only what stands inside, and refuses when the two differ.
 *
 * The nonce is drawn for each envelope. A counter, or a stock drawn ahead, would be used twice by a process that is
 * restored from a snapshot, and a nonce used twice gives both bodies away; in Bun a draw costs 0.06 µs.
 */
import { type EnvelopeId, fromHex, type Millis } from '@sealpost/std'
import { holdsBytes } from './byte-fields.ts'
import {
  ENVELOPE_ID_AT,
  HEADER_BYTES,
  hashHeader,
  InnerHeader,
  MAC_BYTES,
  NONCE_BYTES,
  RECIPIENT_AT,
  ROUTE_AT,
  SENDER_AT,
  type StreamPosition,
  writeHeader,
} from './inner-header.ts'
import type { Correspondent, Line, Sealer } from './sealer.ts'
import { sodium } from './sodium.ts'

export interface EnvelopeDraft {
  readonly to: Correspondent
  readonly envelopeId: EnvelopeId
  /** Null for delayed, ephemeral and pool messages, which stand in no stream. */
  readonly stream: StreamPosition | null
  readonly sentAtMs: Millis
  readonly body: Uint8Array
}

/**
 * `does_not_open`: changed on its way, or sealed with other keys than the directory's. `reflected`: the reader's own
 * envelope came back as if the other had sent it. `malformed`: too short, or a header no version of this program writes.
 */
export type OpenRefusal =
  | 'does_not_open'
  | 'foreign_mesh'
  | 'wrong_sender'
  | 'wrong_recipient'
  | 'reflected'
  | 'wrong_envelope_id'
  | 'malformed'

/** The body shares memory with the header and with nothing else: it is the caller's. */
export type OpenResult =
  | { readonly ok: true; readonly header: InnerHeader; readonly body: Uint8Array }
  | { readonly ok: false; readonly reason: OpenRefusal }

/**
 * Seals a body for one correspondent. The same draft gives other bytes each time: seal once, and resend those bytes.
 * @throws OperatingError `box_key_unusable`
 */
export function sealEnvelope(sealer: Sealer, draft: EnvelopeDraft): Uint8Array {
  return sealWithNonce(sealer, draft, crypto.getRandomValues(new Uint8Array(NONCE_BYTES)))
}

/** Seals, and answers what the next envelope of the stream must carry as `prev`. @throws OperatingError `box_key_unusable` */
export function sealInStream(sealer: Sealer, draft: EnvelopeDraft): { envelope: Uint8Array; headerHash: Uint8Array } {
  const envelope = sealEnvelope(sealer, draft)
  return { envelope, headerHash: hashHeader(scratch.subarray(0, HEADER_BYTES)) }
}

/** For test vectors only, where the nonce is given. */
export function sealWithNonce(sealer: Sealer, draft: EnvelopeDraft, nonce: Uint8Array): Uint8Array {
  const line = sealer.lineTo(draft.to)
  const box = sodium.crypto_box_easy_afternm(writePlaintext(sealer, line, draft), nonce, sealer.sharedKey(line, 0))
  const envelope = new Uint8Array(NONCE_BYTES + box.length)
  envelope.set(nonce)
  envelope.set(box, NONCE_BYTES)
  return envelope
}

/** What the envelope after this one in its stream must carry as `prev`: the hash of the header this draft gets. */
export function sealedHeaderHash(sealer: Sealer, draft: EnvelopeDraft): Uint8Array {
  const header = new Uint8Array(HEADER_BYTES)
  writeHeader(header, headerOf(sealer, sealer.lineTo(draft.to), draft))
  return hashHeader(header)
}

/**
 * Opens an envelope that the broker says came from `from` under this id, and compares what stands inside with that and
 * with the sealer's own mesh and key. Never throws on what the network brought.
 */
export function openEnvelope(
  sealer: Sealer,
  envelope: Uint8Array,
  expected: { from: Correspondent; envelopeId: EnvelopeId },
): OpenResult {
  if (envelope.length < NONCE_BYTES + MAC_BYTES) return { ok: false, reason: 'malformed' }
  const line = sealer.lineTo(expected.from)
  const plaintext = unbox(sealer, line, envelope)
  if (!plaintext) return { ok: false, reason: 'does_not_open' }
  const header = InnerHeader.parse(plaintext)
  if (!header) return { ok: false, reason: 'malformed' }
  if (!holdsBytes(plaintext, ROUTE_AT, line.routeIn)) return { ok: false, reason: misroute(header.bytes, line) }
  if (!holdsBytes(plaintext, ENVELOPE_ID_AT, fromHex(expected.envelopeId)))
    return { ok: false, reason: 'wrong_envelope_id' }
  return { ok: true, header, body: plaintext.subarray(HEADER_BYTES, plaintext.length - header.paddingBytes) }
}

/** Tries the current box key, then the former ones: the outside of an envelope doesn't say which it was sealed to. */
function unbox(sealer: Sealer, line: Line, envelope: Uint8Array): Uint8Array | null {
  const nonce = envelope.subarray(0, NONCE_BYTES)
  const box = envelope.subarray(NONCE_BYTES)
  for (let own = 0; own < sealer.ownKeyCount; own++) {
    try {
      return sodium.crypto_box_open_easy_afternm(box, nonce, sealer.sharedKey(line, own))
    } catch {
      // libsodium throws for a box of another key and for a changed one: the next key may fit.
    }
  }
  return null
}

/** Which part of the route differs. An own envelope that came back opens, for both ends share the key. */
function misroute(header: Uint8Array, line: Line): OpenRefusal {
  const holds = (from: number, to: number, route: Uint8Array) =>
    holdsBytes(header, from, route.subarray(from - ROUTE_AT, to - ROUTE_AT))
  if (!holds(ROUTE_AT, SENDER_AT, line.routeIn)) return 'foreign_mesh'
  if (holds(SENDER_AT, RECIPIENT_AT, line.routeIn)) return 'wrong_recipient'
  return holds(SENDER_AT, RECIPIENT_AT, line.routeOut) ? 'reflected' : 'wrong_sender'
}

/** Reused from envelope to envelope: sealing is synchronous, and libsodium copies it. */
let scratch = new Uint8Array(4096)

function writePlaintext(sealer: Sealer, line: Line, draft: EnvelopeDraft): Uint8Array {
  const header = headerOf(sealer, line, draft)
  const bodyEnd = HEADER_BYTES + draft.body.length
  const length = bodyEnd + header.paddingBytes
  if (scratch.length < length) scratch = new Uint8Array(length * 2)
  writeHeader(scratch, header)
  scratch.set(draft.body, HEADER_BYTES)
  scratch.fill(0, bodyEnd, length)
  return scratch.subarray(0, length)
}

function headerOf(sealer: Sealer, line: Line, draft: EnvelopeDraft) {
  const overhang = draft.body.length % sealer.bucketBytes
  return {
    route: line.routeOut,
    envelopeId: draft.envelopeId,
    stream: draft.stream,
    boxEpoch: draft.to.boxEpoch,
    sentAtMs: draft.sentAtMs,
    paddingBytes: overhang === 0 ? 0 : sealer.bucketBytes - overhang,
  }
}
