/**
 * The keys of other peers as the engine uses them: the directory, who waits for an answer of it, and what opens with them.
 * Pure and synchronous.
 */
import type { FrameOf } from '@sealpost/protocol'
import { type EnvelopeId, type Millis, type PeerKey, toHex } from '@sealpost/std'
import { refusedBy, SealpostError } from '../errors.ts'
import type { OpenVerdict } from '../inbox/message.ts'
import type { CryptoPort, EnginePart, KeyRefusal, PeerEvent } from '../ports.ts'
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

export class PeerKeys implements EnginePart {
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

  takeFrames: KeyDirectory['takeFrames'] = (nowMs) => this.directory.takeFrames(nowMs)

  get wakeAtMs(): Millis {
    return this.directory.wakeAtMs
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

export interface IncomingEnvelope {
  readonly sender: PeerKey
  readonly envelopeId: EnvelopeId
  readonly envelope: Uint8Array
}

export interface EnvelopeOpenerPorts {
  readonly crypto: Pick<CryptoPort, 'open' | 'lacksBoxKey'>
  readonly keys: KeyDirectory
  readonly self: PeerKey
  /** The directory names a box key of this peer that it was not given. Nothing of the mail sealed to it may be ended. */
  readonly ownKeyMissing: (boxEpoch: number) => void
  /** What waits of this sender may be tried again. */
  readonly unlock: (sender: PeerKey) => void
}

/** Opens what came from other peers, with the keys that are believed; asks for those that are not known. */
export class EnvelopeOpener {
  readonly #ports: EnvelopeOpenerPorts
  /** All keys of their senders were asked for since they came. */
  readonly #rechecked = new WeakSet<IncomingEnvelope>()
  /**
   * Whether the directory's key of this peer is one it holds. Asked once in a session: a peer turns to another key in a
   * session of its own, which would end this one.
   */
  #ownKey: 'unchecked' | 'asked' | 'held' = 'unchecked'
  /** Senders of what waits for that answer. */
  readonly #waiting = new Set<PeerKey>()

  constructor(ports: EnvelopeOpenerPorts) {
    this.#ports = ports
  }

  /**
   * `asked`: a key was asked for, and `unlock` or the directory tells when it came. `later`: the sender's keys were asked
   * for just before this came, so the sender may have turned to another key meanwhile; `RECHECK_MS` later they are asked
   * for again. `does_not_open` is final: it opens with no key that the directory knows, and this peer lacks none.
   */
  open(arrival: IncomingEnvelope, nowMs: Millis): OpenVerdict | 'asked' | 'later' {
    const { crypto, keys } = this.#ports
    const { sender } = arrival
    const key = keys.findForOpening(sender)
    if (!key) return 'asked'
    const opened = crypto.open(key, arrival)
    if (isAnswer(opened)) return opened
    for (const former of keys.formersOf(sender)) {
      const other = crypto.open(former, arrival)
      if (isAnswer(other)) return other
    }
    // Its sender may have been unlocked for something else, before the keys came.
    if (this.#rechecked.has(arrival))
      return keys.isRechecking(sender) ? 'asked' : this.#unlessOwnKeyMissing(arrival, opened)
    if (!keys.recheck(sender, nowMs)) return 'later'
    this.#rechecked.add(arrival)
    return 'asked'
  }

  /** Waits behind another one of its sender, and shares the question for all keys of the sender if it has not left. */
  waitsBehind(arrival: IncomingEnvelope): void {
    if (this.#ports.keys.isRecheckUnsent(arrival.sender)) this.#rechecked.add(arrival)
  }

  /** The directory's key of this peer, asked for here or elsewhere; null: it has none that can be believed. */
  ownKeyAnswered(key: KnownKey | null): void {
    if (key && this.#ports.crypto.lacksBoxKey(key)) return this.#ports.ownKeyMissing(key.boxEpoch)
    this.#ownKey = 'held'
    const senders = [...this.#waiting]
    this.#waiting.clear()
    for (const sender of senders) this.#ports.unlock(sender)
  }

  disconnected(): void {
    this.#ownKey = 'unchecked'
    this.#waiting.clear()
  }

  #unlessOwnKeyMissing({ sender }: IncomingEnvelope, opened: OpenVerdict): OpenVerdict | 'asked' {
    if (this.#ownKey === 'held') return opened
    if (this.#ownKey === 'unchecked') this.#ports.keys.ask(this.#ports.self)
    this.#ownKey = 'asked'
    this.#waiting.add(sender)
    return 'asked'
  }
}

/** Whatever is wrong with it, another key would not change that. */
const isAnswer = (opened: OpenVerdict): boolean => opened.ok || opened.reason !== 'does_not_open'
