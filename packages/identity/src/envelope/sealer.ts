/**
 * One identity in one mesh, ready to seal and to open. A shared key costs about 200 µs to compute and sealing with one
 * about 3, so shared keys are kept, with the bytes of each correspondent's route beside them; the oldest entry makes
 * room when the bound is reached.
 */
import { assert, fromHex, type MeshId, OperatingError, type PeerKey } from '@sealpost/std'
import { concatBytes, holdsBytes } from '../byte-fields.ts'
import type { BoxKeys, Identity } from '../keys/keys.ts'
import { sodium } from '../sodium.ts'
import { StreamIdReader } from './inner-header.ts'

/** The other end: a peer and its box key. A checked `KeyBinding` is one. */
export interface Correspondent {
  readonly peerKey: PeerKey
  readonly boxKey: Uint8Array
  readonly boxEpoch: number
  /** Left here by the sealer that sealed to it or opened from it last, which finds it so without a search. */
  cache?: CorrespondentCache
}

/** What is remembered of a correspondent: routes are mesh, sender and recipient as they stand in the inner header. */
export interface CorrespondentCache {
  /** Null when it is forgotten, and its secrets with it. */
  sealer: Sealer | null
  readonly boxKey: Uint8Array
  readonly routeOut: Uint8Array
  readonly routeIn: Uint8Array
  /** The same to identity keys that the sealer's own has followed. */
  readonly formerRoutesIn: readonly Uint8Array[]
  /** The stream its last envelope stood in. */
  readonly streamIn: StreamIdReader
  /** One for each of the sealer's own box keys, current first; null until asked for. */
  readonly sharedKeys: (Uint8Array | null)[]
}

export interface SealerOptions {
  readonly identity: Identity
  readonly meshId: MeshId
  /** Box keys from before a rotation, kept until what was sealed to them is drained. For opening only. */
  readonly formerBoxKeys?: readonly BoxKeys[]
  /** Identity keys that this one has followed: what was sealed to them is opened, too. */
  readonly formerKeys?: readonly PeerKey[]
  /** Correspondents remembered, about 500 bytes each. */
  readonly correspondentsMax?: number
  /** Pads bodies so that body and padding are a multiple of this; 1 pads nothing. A policy of the mesh. */
  readonly bucketBytes?: number
}

/** Box keys remembered of one correspondent: the current one and former ones, as many as a broker keeps. */
const BOX_KEYS_MAX = 17

export class Sealer {
  readonly bucketBytes: number
  readonly #ownKeys: readonly BoxKeys[]
  readonly #mesh: Uint8Array
  readonly #self: Uint8Array
  readonly #formers: readonly Uint8Array[]
  readonly #linesMax: number
  /** One for each box key of a correspondent, the one that came last first. */
  readonly #lines = new Map<PeerKey, CorrespondentCache[]>()

  constructor(options: SealerOptions) {
    this.bucketBytes = options.bucketBytes ?? 1
    this.#linesMax = options.correspondentsMax ?? 4096
    assert(this.bucketBytes >= 1 && this.#linesMax >= 1, 'a sealer has a bucket and room for a correspondent')
    this.#ownKeys = [options.identity.box, ...(options.formerBoxKeys ?? [])]
    this.#mesh = fromHex(options.meshId)
    this.#self = fromHex(options.identity.signing.publicKey)
    this.#formers = (options.formerKeys ?? []).map((key) => fromHex(key))
  }

  get ownKeyCount(): number {
    return this.#ownKeys.length
  }

  /** Never more than `correspondentsMax`. */
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

  /** Computes the shared key now, so that the first message needn't wait for it: a hundred times the cost of sealing. */
  prepare(other: Correspondent): void {
    this.sharedKey(this.cacheOf(other), 0)
  }

  /**
   * The key shared by a correspondent and the sealer's own box key number `own`, 0 being the current one.
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
    assert(peer.length === 32 && other.boxKey.length === 32, 'a correspondent has two keys of 32 bytes')
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
    return sodium.crypto_box_beforenm(boxKey, own.secretKey)
  } catch (cause) {
    throw new OperatingError('box_key_unusable', 'The box key of this peer is none that a message can be sealed to.', {
      cause,
    })
  }
}
