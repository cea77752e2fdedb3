/**
 * Seals and opens envelopes: nonce 24, then `crypto_box` (mac 16, ciphertext) of inner header, note, body and padding;
 * most have no note. The broker routes by the outer fields. The recipient trusts only the inner fields and refuses an
 * envelope if the two differ.
 *
 * The nonce is random: a process restored from a snapshot would repeat a counter, and a repeated nonce reveals both
 * bodies.
 */
import {
  assert,
  type EnvelopeId,
  fromHex,
  holdsBytes,
  type MeshId,
  type Millis,
  OperatingError,
  type PeerKey,
} from '@sealpost/std'
import { concatBytes, holdsHex } from '../byte-fields.ts'
import type { BoxKeys, Identity } from '../keys/keys.ts'
import { sharedKeyOf } from '../platform-crypto.ts'
import { hash256 } from '../sodium.ts'
import { type EnvelopeMemory, envelopeMemory, NONCE_BYTES, SEAL_BYTES } from './envelope-memory.ts'
import {
  ENVELOPE_ID_AT,
  encodeNote,
  HEADER_BYTES,
  type HeaderFields,
  type InnerHeader,
  type Note,
  RECIPIENT_AT,
  ROUTE_AT,
  readHeader,
  readNote,
  SENDER_AT,
  StreamIdReader,
  type StreamPosition,
  writeHeader,
} from './inner-header.ts'

export interface EnvelopeDraft {
  readonly to: Correspondent
  readonly envelopeId: EnvelopeId
  /** Null for delayed, ephemeral and pool messages, which have no stream. */
  readonly stream: StreamPosition | null
  readonly sentAtMs: Millis
  readonly note?: Note | null
  readonly body: Uint8Array
  /** The box of a pool member. It is not padded, because one message contains up to 64 of them. */
  readonly isBox?: boolean
}

/**
 * `does_not_open`: the envelope was changed, or sealed with other keys than the directory's. `reflected`: it is the
 * reader's own, returned as the other peer's. `malformed`: its length, header or note is invalid.
 */
export type OpenRefusal =
  | 'does_not_open'
  | 'foreign_mesh'
  | 'wrong_sender'
  | 'wrong_recipient'
  | 'reflected'
  | 'wrong_envelope_id'
  | 'malformed'

/** The caller owns the body. */
export type OpenResult =
  | {
      readonly ok: true
      readonly header: InnerHeader
      /** The `prev` of the next envelope in the stream; null if there is no stream. */
      readonly headerHash: Uint8Array | null
      readonly note: Note | null
      readonly body: Uint8Array
    }
  | { readonly ok: false; readonly reason: OpenRefusal }

export interface SealedEnvelope {
  readonly envelope: Uint8Array
  /** The `prev` of the next envelope in the stream. */
  readonly headerHash: Uint8Array
}

/**
 * Seals a body for one correspondent. Each call returns different bytes, so seal once and resend those bytes.
 * @throws OperatingError `box_key_unusable`
 */
export function sealEnvelope(sealer: Sealer, draft: EnvelopeDraft): Uint8Array {
  return sealInStream(sealer, draft).envelope
}

/**
 * Like `sealEnvelope`, but also returns the header hash for the next envelope of the stream. @throws OperatingError
 * `box_key_unusable`
 */
export function sealInStream(sealer: Sealer, draft: EnvelopeDraft): SealedEnvelope {
  return sealWithNonce(sealer, draft, crypto.getRandomValues(freshNonce))
}

const NOTE_LENGTH_BYTES = 2
/** Reused, because the envelope contains a copy. */
const freshNonce = new Uint8Array(NONCE_BYTES)

/** Seals with a given nonce, for test vectors only. */
export function sealWithNonce(sealer: Sealer, draft: EnvelopeDraft, nonce: Uint8Array): SealedEnvelope {
  const line = sealer.cacheOf(draft.to)
  const sharedKey = sealer.sharedKey(line, 0)
  const memory = envelopeMemory()
  const length = writePlaintext(memory, sealer, line, draft)
  const headerHash = memory.hashPlaintext(HEADER_BYTES) // first, because sealing overwrites the plaintext
  return { envelope: memory.seal(length, nonce, sharedKey), headerHash }
}

/** Writes the plaintext into the memory. Returns its length. */
function writePlaintext(
  memory: EnvelopeMemory,
  sealer: Sealer,
  line: CorrespondentCache,
  draft: EnvelopeDraft,
): number {
  const { body } = draft
  const note = draft.note ? encodeNote(draft.note) : null
  const noteBytes = note ? NOTE_LENGTH_BYTES + note.length : 0
  const header = headerOf(sealer, line, draft, noteBytes)
  const bodyAt = HEADER_BYTES + noteBytes
  const bodyEnd = bodyAt + body.length
  const length = bodyEnd + header.paddingBytes
  memory.reserve(SEAL_BYTES + length)
  const { bytes, plaintextAt } = memory
  writeHeader(bytes, plaintextAt, header)
  if (note) writeNote(bytes, plaintextAt + HEADER_BYTES, note)
  bytes.set(body, plaintextAt + bodyAt)
  if (header.paddingBytes > 0) bytes.fill(0, plaintextAt + bodyEnd, plaintextAt + length)
  return length
}

function writeNote(into: Uint8Array, at: number, note: Uint8Array): void {
  into[at] = note.length >>> 8
  into[at + 1] = note.length
  into.set(note, at + NOTE_LENGTH_BYTES)
}

function headerOf(sealer: Sealer, line: CorrespondentCache, draft: EnvelopeDraft, noteBytes: number): HeaderFields {
  const bytes = noteBytes + draft.body.length
  return {
    route: line.routeOut,
    envelopeId: draft.envelopeId,
    stream: draft.stream,
    boxEpoch: draft.to.boxEpoch,
    sentAtMs: draft.sentAtMs,
    hasNote: noteBytes > 0,
    paddingBytes: draft.isBox ? 0 : sealer.padTo(bytes) - bytes,
  }
}

/**
 * Opens an envelope, and compares its inner header with the sender and id that the broker reported and with the
 * sealer's mesh and key. Never throws on input from the network.
 */
export function openEnvelope(
  sealer: Sealer,
  envelope: Uint8Array,
  expected: { from: Correspondent; envelopeId: EnvelopeId },
): OpenResult {
  const length = envelope.length - SEAL_BYTES
  if (length < 0) return { ok: false, reason: 'malformed' }
  const line = sealer.cacheOf(expected.from)
  const memory = envelopeMemory()
  if (!unbox(sealer, line, envelope, memory)) return { ok: false, reason: 'does_not_open' }
  const plaintext = { bytes: memory.bytes, at: memory.plaintextAt, length }
  return readPlaintext(line, expected.envelopeId, plaintext, () => memory.hashPlaintext(HEADER_BYTES))
}

/** Returns the plaintext of an envelope, for a ratchet to seal. `envelope` is not sealed yet. */
export function encodeEnvelope(sealer: Sealer, draft: EnvelopeDraft): SealedEnvelope {
  const memory = envelopeMemory()
  const length = writePlaintext(memory, sealer, sealer.cacheOf(draft.to), draft)
  const { bytes, plaintextAt } = memory
  return { envelope: bytes.slice(plaintextAt, plaintextAt + length), headerHash: memory.hashPlaintext(HEADER_BYTES) }
}

/** Like `openEnvelope`, for a plaintext that a ratchet has opened. */
export function decodeEnvelope(
  sealer: Sealer,
  bytes: Uint8Array,
  expected: { from: Correspondent; envelopeId: EnvelopeId },
): OpenResult {
  const plaintext = { bytes, at: 0, length: bytes.length }
  const hashHeader = () => hash256(bytes.subarray(0, HEADER_BYTES)).slice(0, 16)
  return readPlaintext(sealer.cacheOf(expected.from), expected.envelopeId, plaintext, hashHeader)
}

interface Plaintext {
  readonly bytes: Uint8Array
  readonly at: number
  readonly length: number
}

function readPlaintext(
  line: CorrespondentCache,
  envelopeId: EnvelopeId,
  { bytes, at, length }: Plaintext,
  hashHeader: () => Uint8Array,
): OpenResult {
  const header = readHeader(bytes, at, length, line.streamIn)
  if (!header) return { ok: false, reason: 'malformed' }
  if (!isFor(line, bytes, at + ROUTE_AT)) return { ok: false, reason: misroute(bytes, at, line) }
  if (!holdsHex(bytes, at + ENVELOPE_ID_AT, envelopeId)) return { ok: false, reason: 'wrong_envelope_id' }
  const [from, to] = [at + HEADER_BYTES, at + length - header.paddingBytes]
  const headerHash = header.stream && hashHeader()
  if (header.hasNote) return openNote(bytes, { from, to }, { header, headerHash })
  return { ok: true, header, headerHash, note: null, body: bytes.slice(from, to) }
}

/** Reads the note, if there is one, after the header. */
function openNote(
  bytes: Uint8Array,
  { from, to }: { from: number; to: number },
  read: { header: InnerHeader; headerHash: Uint8Array | null },
): OpenResult {
  const noteAt = from + NOTE_LENGTH_BYTES
  const bodyAt = noteAt + ((bytes[from]! << 8) | bytes[from + 1]!)
  const note = bodyAt <= to ? readNote(bytes, noteAt, bodyAt) : null
  return note ? { ok: true, ...read, note, body: bytes.slice(bodyAt, to) } : { ok: false, reason: 'malformed' }
}

/** Tries the current box key, then the former ones, because an envelope does not contain its recipient's key. */
function unbox(sealer: Sealer, line: CorrespondentCache, envelope: Uint8Array, memory: EnvelopeMemory): boolean {
  for (let own = 0; own < sealer.ownKeyCount; own++) {
    try {
      if (memory.open(envelope, sealer.sharedKey(line, own))) return true
    } catch {
      // A box key of small order opens nothing.
    }
  }
  return false
}

function isFor({ routeIn, formerRoutesIn: routesOnce }: CorrespondentCache, bytes: Uint8Array, at: number): boolean {
  return holdsBytes(bytes, at, routeIn) || routesOnce.some((route) => holdsBytes(bytes, at, route))
}

/** Returns how the route differs. A reflected envelope opens, because both peers share the key. */
function misroute(bytes: Uint8Array, at: number, line: CorrespondentCache): OpenRefusal {
  const holds = (from: number, to: number, route: Uint8Array) =>
    holdsBytes(bytes, at + from, route.subarray(from - ROUTE_AT, to - ROUTE_AT))
  if (!holds(ROUTE_AT, SENDER_AT, line.routeIn)) return 'foreign_mesh'
  if (holds(SENDER_AT, RECIPIENT_AT, line.routeIn)) return 'wrong_recipient'
  return holds(SENDER_AT, RECIPIENT_AT, line.routeOut) ? 'reflected' : 'wrong_sender'
}

/** A peer and its box key. A verified `KeyBinding` is a `Correspondent`. */
export interface Correspondent {
  readonly peerKey: PeerKey
  readonly boxKey: Uint8Array
  readonly boxEpoch: number
  /** The cache of the sealer that last used this correspondent. @internal */
  cache?: CorrespondentCache
}

/** The cache of one correspondent. Routes are mesh, sender and recipient as written in the inner header. */
export interface CorrespondentCache {
  /** Null after eviction, which wipes the secrets. */
  sealer: Sealer | null
  readonly boxKey: Uint8Array
  readonly routeOut: Uint8Array
  readonly routeIn: Uint8Array
  /** Routes to the sealer's former identity keys. */
  readonly formerRoutesIn: readonly Uint8Array[]
  /** Decodes the streams of its envelopes. */
  readonly streamIn: StreamIdReader
  /** The key shared with each of the sealer's own box keys, current one first. Null until needed. */
  readonly sharedKeys: (Uint8Array | null)[]
}

export interface SealerOptions {
  readonly identity: Identity
  readonly meshId: MeshId
  /** Box keys from before a rotation, used for opening only. */
  readonly formerBoxKeys?: readonly BoxKeys[]
  /** Former identity keys, to which mail may be sealed. */
  readonly formerKeys?: readonly PeerKey[]
  /** The maximum number of cached correspondents, at about 500 bytes each; at least 1. */
  readonly correspondentsMax?: number
  /** Returns the length to which a note and a body of `bytes` are padded, at least `bytes`. Default: no padding. */
  readonly padTo?: (bytes: number) => number
}

/** The maximum number of cached box keys per correspondent, as many as a broker stores. */
const BOX_KEYS_MAX = 17

export class Sealer {
  readonly padTo: (bytes: number) => number
  readonly #ownKeys: readonly BoxKeys[]
  readonly #mesh: Uint8Array
  readonly #self: Uint8Array
  readonly #formers: readonly Uint8Array[]
  readonly #linesMax: number
  /** The entries per correspondent, most recent first. */
  readonly #lines = new Map<PeerKey, CorrespondentCache[]>()

  constructor(options: SealerOptions) {
    this.padTo = options.padTo ?? ((bytes) => bytes)
    this.#linesMax = options.correspondentsMax ?? 4096
    assert(this.#linesMax >= 1, 'invalid sealer limits')
    this.#ownKeys = [options.identity.box, ...(options.formerBoxKeys ?? [])]
    this.#mesh = fromHex(options.meshId)
    this.#self = fromHex(options.identity.signing.publicKey)
    this.#formers = (options.formerKeys ?? []).map((key) => fromHex(key))
  }

  get ownKeyCount(): number {
    return this.#ownKeys.length
  }

  get correspondentCount(): number {
    return this.#lines.size
  }

  cacheOf(other: Correspondent): CorrespondentCache {
    if (other.cache?.sealer === this) return other.cache
    other.cache = this.#find(other)
    return other.cache
  }

  #find(other: Correspondent): CorrespondentCache {
    const lines = this.#lines.get(other.peerKey)
    if (lines) for (const line of lines) if (holdsBytes(other.boxKey, 0, line.boxKey)) return line
    const line = this.#newLine(other)
    if (!lines) this.#forget(this.#eldestIfFull())
    const kept = lines?.slice(0, BOX_KEYS_MAX - 1) ?? []
    for (const dropped of lines?.slice(BOX_KEYS_MAX - 1) ?? []) wipe(dropped)
    this.#lines.set(other.peerKey, [line, ...kept])
    return line
  }

  /** Computes the shared key in advance, which costs a hundred times as much as sealing. */
  prepare(other: Correspondent): void {
    this.sharedKey(this.cacheOf(other), 0)
  }

  /**
   * Returns the key shared with a correspondent. `own` is the number of the sealer's own box key; 0 is the current one.
   * @throws OperatingError `box_key_unusable` for a box key of small order, with which there is no secret
   */
  sharedKey(line: CorrespondentCache, own: number): Uint8Array {
    const known = line.sharedKeys[own]
    if (known) return known
    const computed = computeSharedKey(line.boxKey, this.#ownKeys[own]!)
    line.sharedKeys[own] = computed
    return computed
  }

  #newLine(other: Correspondent): CorrespondentCache {
    const peer = fromHex(other.peerKey)
    assert(peer.length === 32 && other.boxKey.length === 32, 'invalid correspondent')
    return {
      sealer: this,
      boxKey: other.boxKey.slice(),
      routeOut: concatBytes([this.#mesh, this.#self, peer]),
      routeIn: concatBytes([this.#mesh, peer, this.#self]),
      formerRoutesIn: this.#formers.map((former) => concatBytes([this.#mesh, peer, former])),
      streamIn: new StreamIdReader(),
      sharedKeys: this.#ownKeys.map(() => null),
    }
  }

  #eldestIfFull(): PeerKey | undefined {
    return this.#lines.size < this.#linesMax ? undefined : this.#lines.keys().next().value
  }

  #forget(peerKey: PeerKey | undefined): void {
    if (!peerKey) return
    for (const line of this.#lines.get(peerKey) ?? []) wipe(line)
    this.#lines.delete(peerKey)
  }
}

function wipe(line: CorrespondentCache): void {
  line.sealer = null
  for (const sharedKey of line.sharedKeys) sharedKey?.fill(0)
}

function computeSharedKey(boxKey: Uint8Array, own: BoxKeys): Uint8Array {
  try {
    return sharedKeyOf(boxKey, own)
  } catch (cause) {
    throw new OperatingError('box_key_unusable', 'No message can be sealed to the box key of this recipient.', {
      cause,
    })
  }
}
