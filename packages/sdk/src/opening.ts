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
    let opened = this.#crypto.open(key, arrival)
    for (const former of this.#keys.formersOf(sender)) {
      if (opened.ok || opened.reason !== 'does_not_open') return opened
      opened = this.#crypto.open(former, arrival)
    }
    if (opened.ok || opened.reason !== 'does_not_open') return opened
    // Its sender may have been unlocked for something else, before the keys came.
    if (this.#rechecked.has(arrival)) return this.#keys.isRechecking(sender) ? 'asked' : opened
    if (!this.#keys.recheck(sender, nowMs)) return 'later'
    this.#rechecked.add(arrival)
    return 'asked'
  }
}
