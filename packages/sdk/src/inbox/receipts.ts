/** What became of messages this peer sent, as the broker tells it: told to the application once each. */

import type { FrameOf, ReceiptEvent } from '@sealpost/protocol'
import type { EnvelopeId, Millis, PeerKey } from '@sealpost/std'
import { addBounded } from './sequence-tracker.ts'

/** The broker's word: no peer signed it. */
export interface DeliveryReceipt {
  readonly envelopeId: EnvelopeId
  readonly recipient: PeerKey
  /** `expired`, `struck_out` and `rejected` are ends among the dead letters. */
  readonly event: ReceiptEvent
  /** By the broker's database clock. */
  readonly atMs: Millis
}

const TOLD_MAX = 4_096

export class Receipts {
  readonly #told = new Set<string>()

  /** Those that were not told before in this life of the peer. */
  take(items: FrameOf<'receipts'>['items']): DeliveryReceipt[] {
    return items.filter(({ envelopeId, event }) => this.#isNews(`${envelopeId} ${event}`)).map(receiptOf)
  }

  #isNews(name: string): boolean {
    if (this.#told.has(name)) return false
    addBounded(this.#told, name, TOLD_MAX)
    return true
  }
}

function receiptOf({ envelopeId, recipient, event, atMs }: FrameOf<'receipts'>['items'][number]): DeliveryReceipt {
  return { envelopeId, recipient, event, atMs }
}
