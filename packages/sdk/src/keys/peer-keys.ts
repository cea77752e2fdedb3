/**
 * Handles the keys of other peers in the engine: the directory, lookups that wait for it, and opening mail with its
 * keys. Pure and synchronous.
 */
import { isRatcheted } from '@sealpost/identity'
import type { FrameOf } from '@sealpost/protocol'
import { type EnvelopeId, type Millis, type PeerKey, toHex } from '@sealpost/std'
import { refusedBy, SealpostError } from '../errors.ts'
import type { OpenVerdict } from '../inbox/message.ts'
import type { Lane } from '../outbox/lane.ts'
import type { CryptoPort, EnginePart, IncomingEnvelope, KeyRefusal, PeerEvent } from '../ports.ts'
import { KeyDirectory, type KnownKey } from './key-directory.ts'
import type { KeyEpochs } from './key-epochs.ts'

export interface KeyWaiter {
  found(key: KnownKey): void
  refused(error: SealpostError): void
}

export interface PeerKeysPorts {
  readonly crypto: Pick<CryptoPort, 'checkBinding' | 'open' | 'lacksBoxKey' | 'awaitsKeys'>
  readonly epochs: KeyEpochs
  /** Returns the current identity key for a former one. */
  readonly current: (peer: PeerKey) => PeerKey
  readonly self: PeerKey
  /** Called when the directory has a box key of this peer that the peer itself does not have. */
  readonly ownKeyMissing: (error: SealpostError) => void
  readonly bindingDue?: (() => void) | undefined
  readonly emit: (event: PeerEvent) => void
  /** Called when the peer's key is known, so that waiting messages proceed. */
  readonly unlock: (peer: PeerKey) => void
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
      self: ports.self,
      bindingDue: ports.bindingDue,
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

  /** Returns the key to seal with in a lane, or null if `unlock` or `refuse` will follow. */
  keyFor({ recipient, priority }: Pick<Lane, 'recipient' | 'priority'>, nowMs: Millis): KnownKey | null {
    const key = this.directory.find(recipient, nowMs)
    return key && this.#ports.crypto.awaitsKeys?.(key, priority) ? null : key
  }

  /** Looks up the peer's checked box key, in memory or in the broker's directory. */
  lookup(peer: PeerKey, waiter: KeyWaiter, nowMs: Millis): void {
    const known = this.directory.find(peer, nowMs)
    if (known) return waiter.found(known)
    const waiters = this.#waiters.get(peer)
    if (waiters) waiters.push(waiter)
    else this.#waiters.set(peer, [waiter])
    this.#ports.flushSoon()
  }

  /** Call when the broker reports that these peers have newer keys. */
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
        : new SealpostError('key_refused', `The directory returned no valid key for this peer (${reason}).`)
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
  const reason = `This peer lacks its box key number ${boxEpoch} and can't open a message.`
  return new SealpostError('own_key_missing', `${reason} Start it with the key file that the rotation wrote.`)
}

/**
 * Returns a generator of envelope ids: UUID v7 (RFC 9562, 5.7) with a 32-bit counter after the milliseconds, so that
 * ids ascend even if the clock is set back. In a browser, it is a third of the size of the `uuid` library.
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
      count = view.getUint32(6) >>> 1 // leave room for the counter within a millisecond
    } else count += 1
    view.setUint16(0, atMs / 0x100000000)
    view.setUint32(2, atMs)
    view.setUint16(6, 0x7000 | (count >>> 20))
    view.setUint16(8, 0x8000 | ((count >>> 6) & 0x3fff))
    view.setUint8(10, (count << 2) | (bytes[10]! & 3))
    return toHex(bytes) as EnvelopeId
  }
}

export interface EnvelopeOpenerPorts {
  readonly crypto: Pick<CryptoPort, 'open' | 'lacksBoxKey'>
  readonly keys: KeyDirectory
  readonly self: PeerKey
  /**
   * Called when the directory has a box key of this peer that the peer itself does not have. Mail sealed to it must not
   * be rejected.
   */
  readonly ownKeyMissing: (boxEpoch: number) => void
  /** Called when waiting mail from this sender may be opened. */
  readonly unlock: (sender: PeerKey) => void
}

/** Opens mail from other peers with their trusted keys. Requests unknown keys. */
export class EnvelopeOpener {
  readonly #ports: EnvelopeOpenerPorts
  /** Mail that arrived before all its sender's keys were requested. */
  readonly #rechecked = new WeakSet<IncomingEnvelope>()
  /**
   * Whether this peer has the key that the directory lists for it. This is checked once per session: a peer rotates its
   * key in a separate session, which would end this one.
   */
  #ownKey: 'unchecked' | 'asked' | 'held' = 'unchecked'
  /** Senders of mail that waits for the check of `#ownKey`. */
  readonly #waiting = new Set<PeerKey>()

  constructor(ports: EnvelopeOpenerPorts) {
    this.#ports = ports
  }

  /**
   * `asked`: a key was requested; `unlock` or the directory reports it. `later`: the sender may have rotated since its
   * keys were last requested; they are requested again after `RECHECK_MS`. `does_not_open` is final: no key in the
   * directory opens the mail, and this peer has all its own keys.
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
    // Retry once the keys have arrived: the sender may have been unlocked for another reason.
    if (this.#rechecked.has(arrival))
      return keys.isRechecking(sender) ? 'asked' : this.#unlessOwnKeyMissing(arrival, opened)
    if (!keys.recheck(sender, nowMs)) return 'later'
    this.#rechecked.add(arrival)
    return 'asked'
  }

  /**
   * Call for mail that waits behind another message from its sender. If the request for the sender's keys is still
   * unsent, its reply covers this mail too.
   */
  waitsBehind(arrival: IncomingEnvelope): void {
    if (this.#ports.keys.isRecheckUnsent(arrival.sender)) this.#rechecked.add(arrival)
  }

  /** Handles the key that the directory lists for this peer; null if it lists no trusted one. */
  ownKeyAnswered(key: KnownKey | null): void {
    if (key && this.#ports.crypto.lacksBoxKey(key)) {
      // Without mail that waits for the key, the peer can still publish a newer one.
      if (this.#ownKey === 'asked') this.#ports.ownKeyMissing(key.boxEpoch)
      return
    }
    this.#ownKey = 'held'
    const senders = [...this.#waiting]
    this.#waiting.clear()
    for (const sender of senders) this.#ports.unlock(sender)
  }

  disconnected(): void {
    this.#ownKey = 'unchecked'
    this.#waiting.clear()
  }

  #unlessOwnKeyMissing({ sender, envelope }: IncomingEnvelope, opened: OpenVerdict): OpenVerdict | 'asked' | 'later' {
    // A process with the store of this peer, and a later attempt with other keys, can open it.
    if (this.#ownKey === 'held') return isRatcheted(envelope) ? 'later' : opened
    if (this.#ownKey === 'unchecked') this.#ports.keys.ask(this.#ports.self)
    this.#ownKey = 'asked'
    this.#waiting.add(sender)
    return 'asked'
  }
}

const isAnswer = (opened: OpenVerdict): boolean => opened.ok || opened.reason !== 'does_not_open'
