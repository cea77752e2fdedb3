/** Opens what came from other peers, with the keys that are believed; asks for those that are not known. */
import type { EnvelopeId, Millis, PeerKey } from '@sealpost/std'
import type { KeyDirectory } from './key-directory.ts'
import type { CryptoPort, Opened } from './ports.ts'

export interface SealedArrival {
  readonly sender: PeerKey
  readonly envelopeId: EnvelopeId
  readonly envelope: Uint8Array
}

export class Opening {
  readonly #crypto: Pick<CryptoPort, 'open'>
  readonly #keys: KeyDirectory
  /** All keys of their senders were asked for since they came. */
  readonly #rechecked = new WeakSet<SealedArrival>()

  constructor(crypto: Pick<CryptoPort, 'open'>, keys: KeyDirectory) {
    this.#crypto = crypto
    this.#keys = keys
  }

  /**
   * `asked`: a key of the sender was asked for, and the directory tells whether it came. `later`: it was asked for just
   * before this came, so the sender may have turned to another key meanwhile; `RECHECK_MS` later it is asked for again.
   */
  open(arrival: SealedArrival, nowMs: Millis): Opened | 'asked' | 'later' {
    const { sender } = arrival
    const key = this.#keys.findForOpening(sender)
    if (!key) return 'asked'
    const opened = this.#crypto.open(key, arrival)
    if (isAnswer(opened)) return opened
    for (const former of this.#keys.formersOf(sender)) {
      const other = this.#crypto.open(former, arrival)
      if (isAnswer(other)) return other
    }
    // Its sender may have been unlocked for something else, before the keys came.
    if (this.#rechecked.has(arrival)) return this.#keys.isRechecking(sender) ? 'asked' : opened
    if (!this.#keys.recheck(sender, nowMs)) return 'later'
    this.#rechecked.add(arrival)
    return 'asked'
  }
}

/** Whatever is wrong with it, another key would not change that. */
const isAnswer = (opened: Opened): boolean => opened.ok || opened.reason !== 'does_not_open'
