/**
 * The keys of other peers as the engine uses them: the directory, who waits for an answer of it, and what opens with them.
 * Pure and synchronous.
 */
import type { FrameOf } from '@sealpost/protocol'
import type { Millis, PeerKey } from '@sealpost/std'
import { refusedBy, SealpostError } from './errors.ts'
import type { KeyRefusal, PeerEvent } from './events.ts'
import { KeyDirectory, type KnownKey } from './key-directory.ts'
import type { KeyEpochs } from './key-epochs.ts'
import { Opening } from './opening.ts'
import type { CryptoPort } from './ports.ts'

export interface KeyWaiter {
  found(key: KnownKey): void
  refused(error: SealpostError): void
}

export interface PeerKeysPorts {
  readonly crypto: Pick<CryptoPort, 'checkBinding' | 'open'>
  readonly epochs: KeyEpochs
  /** The identity key of now, of one that others may have followed. */
  readonly current: (peer: PeerKey) => PeerKey
  readonly announce: (event: PeerEvent) => void
  /** The peer's key is known: what waits for it goes on. */
  readonly unlock: (peer: PeerKey) => void
  /** No believable key. */
  readonly refuse: (peer: PeerKey, error: SealpostError) => void
  readonly flushSoon: () => void
}

export class PeerKeys {
  readonly directory: KeyDirectory
  readonly opening: Opening
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
      changed: (peer, { boxEpoch }) => ports.announce({ type: 'key_changed', peer, boxEpoch }),
    })
    this.opening = new Opening(ports.crypto, this.directory)
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

  /** The broker has keys of these by now that differ from what it answered before. */
  rebound({ peers }: FrameOf<'rebound'>): void {
    this.directory.rebound(peers)
    this.#ports.flushSoon()
  }

  disconnected(): void {
    this.directory.disconnected()
  }

  close(error: SealpostError): void {
    for (const waiters of this.#waiters.values()) for (const waiter of waiters) waiter.refused(error)
    this.#waiters.clear()
  }

  #learned(peer: PeerKey, key: KnownKey): void {
    for (const waiter of this.#takeWaiters(peer)) waiter.found(key)
    this.#ports.unlock(peer)
    this.#ports.flushSoon()
  }

  #refused(peer: PeerKey, reason: KeyRefusal): void {
    const error =
      reason === 'unknown_peer'
        ? refusedBy('unknown_recipient')
        : new SealpostError('key_refused', `The directory's key for this peer can't be believed (${reason}).`)
    this.#ports.announce({ type: 'key_refused', peer, reason })
    for (const waiter of this.#takeWaiters(peer)) waiter.refused(error)
    this.#ports.refuse(peer, error)
  }

  #takeWaiters(peer: PeerKey): KeyWaiter[] {
    const waiters = this.#waiters.get(peer) ?? []
    this.#waiters.delete(peer)
    return waiters
  }
}
