/**
 * The keys of other peers as the engine uses them: the directory, who waits for an answer of it, and what opens with them.
 * Pure and synchronous.
 */
import type { FrameOf } from '@sealpost/protocol'
import { type EnvelopeId, type Millis, type PeerKey, toHex } from '@sealpost/std'
import { refusedBy, SealpostError } from '../errors.ts'
import type { KeyRefusal, PeerEvent } from '../events.ts'
import { EnvelopeOpener } from '../inbox/envelope-opener.ts'
import type { CryptoPort } from '../ports.ts'
import { KeyDirectory, type KnownKey } from './key-directory.ts'
import type { KeyEpochs } from './key-epochs.ts'

export interface KeyWaiter {
  found(key: KnownKey): void
  refused(error: SealpostError): void
}

export interface PeerKeysPorts {
  readonly crypto: Pick<CryptoPort, 'checkBinding' | 'open' | 'lacksBoxKey'>
  readonly epochs: KeyEpochs
  /** The identity key of now, of one that others may have followed. */
  readonly current: (peer: PeerKey) => PeerKey
  readonly self: PeerKey
  /** The directory names a box key of this peer that it was not given. */
  readonly ownKeyMissing: (error: SealpostError) => void
  readonly emit: (event: PeerEvent) => void
  /** The peer's key is known: what waits for it continues. */
  readonly unlock: (peer: PeerKey) => void
  /** No believable key. */
  readonly refuse: (peer: PeerKey, error: SealpostError) => void
  readonly flushSoon: () => void
}

export class PeerKeys {
  readonly directory: KeyDirectory
  readonly opening: EnvelopeOpener
  readonly #ports: PeerKeysPorts
  readonly #waiters = new Map<PeerKey, KeyWaiter[]>()

  constructor(ports: PeerKeysPorts) {
    this.#ports = ports
    this.directory = new KeyDirectory({
      crypto: ports.crypto,
      epochs: ports.epochs,
      isFormer: (former, of) => ports.current(former) === of,
      learned: (peer, key) => this.#learned(peer, key),
      refused: (peer, reason) => this.#refused(peer, reason),
      changed: (peer, { boxEpoch }) => ports.emit({ type: 'key_changed', peer, boxEpoch }),
    })
    this.opening = new EnvelopeOpener({
      crypto: ports.crypto,
      keys: this.directory,
      self: ports.self,
      ownKeyMissing: (boxEpoch) => ports.ownKeyMissing(ownKeyMissing(boxEpoch)),
      unlock: (sender) => ports.unlock(sender),
    })
  }

  /** The peer's checked box key, from memory or from the broker's directory. */
  lookup(peer: PeerKey, waiter: KeyWaiter, nowMs: Millis): void {
    const known = this.directory.find(peer, nowMs)
    if (known) return waiter.found(known)
    const waiters = this.#waiters.get(peer)
    if (waiters) waiters.push(waiter)
    else this.#waiters.set(peer, [waiter])
    this.#ports.flushSoon()
  }

  /** Looks up the identity key that `peer` goes by now, also when a successor shows only in the meantime. */
  lookupCurrent(
    peer: PeerKey,
    { found, refused }: KeyWaiter,
    lookup: (peer: PeerKey, waiter: KeyWaiter) => void,
  ): void {
    const { current } = this.#ports
    const now = current(peer)
    const missed = (error: SealpostError) => {
      if (current(now) === now) refused(error)
      else this.lookupCurrent(now, { found, refused }, lookup)
    }
    lookup(now, { found, refused: missed })
  }

  /** The broker has keys of these by now that differ from what it answered before. */
  rebound({ peers }: FrameOf<'rebound'>): void {
    this.directory.rebound(peers)
    this.#ports.flushSoon()
  }

  get isOpen(): boolean {
    return this.directory.isOpen
  }

  disconnected(): void {
    this.directory.disconnected()
    this.opening.disconnected()
  }

  close(error: SealpostError): void {
    for (const waiters of this.#waiters.values()) for (const waiter of waiters) waiter.refused(error)
    this.#waiters.clear()
  }

  #learned(peer: PeerKey, key: KnownKey): void {
    for (const waiter of this.#takeWaiters(peer)) waiter.found(key)
    if (peer === this.#ports.self) this.opening.ownKeyAnswered(key)
    this.#ports.unlock(peer)
    this.#ports.flushSoon()
  }

  #refused(peer: PeerKey, reason: KeyRefusal): void {
    const error =
      reason === 'unknown_peer'
        ? refusedBy('unknown_recipient')
        : new SealpostError('key_refused', `The directory's key for this peer can't be believed (${reason}).`)
    this.#ports.emit({ type: 'key_refused', peer, reason })
    for (const waiter of this.#takeWaiters(peer)) waiter.refused(error)
    if (peer === this.#ports.self) this.opening.ownKeyAnswered(null)
    this.#ports.refuse(peer, error)
  }

  #takeWaiters(peer: PeerKey): KeyWaiter[] {
    const waiters = this.#waiters.get(peer) ?? []
    this.#waiters.delete(peer)
    return waiters
  }
}

function ownKeyMissing(boxEpoch: number): SealpostError {
  const reason = `The directory has box key ${boxEpoch} of this peer, which it was not given, and mail came that it can't open.`
  return new SealpostError('own_key_missing', `${reason} Start it with the key file from after the rotation.`)
}

/**
 * Ids of envelopes: UUID v7 (RFC 9562, 5.7) in which 32 bits behind the time count on within its millisecond, so that each id
 * lies above the one before it, also while the clock is set back. A third of the library's bytes in a browser.
 */
export function envelopeIds(now: () => Millis = Date.now): () => EnvelopeId {
  const bytes = new Uint8Array(16)
  const view = new DataView(bytes.buffer)
  let atMs = 0
  let count = 0
  return () => {
    crypto.getRandomValues(bytes)
    const nowMs = now()
    if (nowMs > atMs) {
      atMs = nowMs
      count = view.getUint32(6) >>> 1 // room to count on
    } else count += 1
    view.setUint16(0, atMs / 0x100000000)
    view.setUint32(2, atMs)
    view.setUint16(6, 0x7000 | (count >>> 20))
    view.setUint16(8, 0x8000 | ((count >>> 6) & 0x3fff))
    view.setUint8(10, (count << 2) | (bytes[10]! & 3))
    return toHex(bytes) as EnvelopeId
  }
}
