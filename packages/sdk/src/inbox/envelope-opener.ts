/** Opens what came from other peers, with the keys that are believed; asks for those that are not known. */
import type { EnvelopeId, Millis, PeerKey } from '@sealpost/std'
import type { KeyDirectory, KnownKey } from '../keys/key-directory.ts'
import type { CryptoPort } from '../ports.ts'
import type { OpenVerdict } from './message.ts'

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
