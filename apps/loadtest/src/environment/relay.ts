/**
 * The first yardstick: a relay that keeps nothing. It acks and pushes each envelope from memory within the same turn of
 * the event loop. What a broker that stores everything falls short of it is the price of storing.
 */
import type { DeliveryId, PeerKey } from '@sealpost/std'
import { type Envelope, Front, type Post, serve } from './front.ts'

class Relay implements Post {
  readonly #front: Front
  #lastId = 0

  constructor(front: Front) {
    this.#front = front
  }

  take(sender: PeerKey, envelopes: readonly Envelope[]): void {
    const enqueuedAtMs = Date.now()
    for (const { envelopeId, recipient, priority, envelope } of envelopes) {
      const id = ++this.#lastId as DeliveryId
      this.#front.ack(sender, envelopeId)
      this.#front.push(recipient, { id, envelopeId, sender, priority, attempt: 1, enqueuedAtMs, envelope })
    }
  }

  async close(): Promise<void> {
    // nothing is kept
  }
}

if (import.meta.main) serve(async (setup) => new Front(setup, (front) => new Relay(front)))
