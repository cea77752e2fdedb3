/**
 * Messages whose leases are to go on: because the application said so, or because it is still at work on them. Those are
 * extended at half their lease, so that a handler may take minutes and costs its message no strike.
 */
import { BATCH_MAX, type FrameOf } from '@sealpost/protocol'
import type { DeliveryId, Millis } from '@sealpost/std'
import { chunksOf } from '../outbox/send-frames.ts'
import type { Message } from './message.ts'

/** The broker takes no longer one. */
export const EXTEND_MS_MAX = 240_000
/** A broker that says 0 must not make us ask without a pause. */
const LEASE_MS_MIN = 20

export class Leases {
  /** With the time at which its lease is to be extended. */
  readonly #held = new Map<Message, Millis>()
  readonly #asked = new Map<Millis, DeliveryId[]>()
  #leaseMs: Millis = EXTEND_MS_MAX
  /** Not after the next one is due: asked for with every frame. */
  wakeAtMs: Millis = Infinity

  connected(leaseMs: Millis): void {
    this.#leaseMs = Math.max(LEASE_MS_MIN, Math.min(leaseMs, EXTEND_MS_MAX))
  }

  disconnected(): void {
    this.#asked.clear()
  }

  /** For as long as the message is open. Answers whether it is due before `wakeAtMs` said. */
  hold(message: Message): boolean {
    const dueAtMs = message.receivedAtMs + this.#leaseMs / 2
    this.#held.set(message, dueAtMs)
    if (dueAtMs >= this.wakeAtMs) return false
    this.wakeAtMs = dueAtMs
    return true
  }

  release(message: Message): void {
    if (this.#held.size > 0) this.#held.delete(message)
  }

  /** `forMs`: from now; null: a whole lease. */
  extend({ deliveryId }: Message, forMs: Millis | null): void {
    const wholeMs = Math.ceil(Math.min(Math.max(forMs ?? this.#leaseMs, 1), EXTEND_MS_MAX)) || 1
    const ids = this.#asked.get(wholeMs)
    if (ids) ids.push(deliveryId)
    else this.#asked.set(wholeMs, [deliveryId])
  }

  /** A message that was not pushed again in this session has no lease in it. */
  takeFrames(nowMs: Millis, sessionNo: number): FrameOf<'extend'>[] {
    if (nowMs >= this.wakeAtMs) this.#extendDue(nowMs, sessionNo)
    if (this.#asked.size === 0) return []
    const frames = [...this.#asked].flatMap(([forMs, asked]) =>
      chunksOf(asked, BATCH_MAX).map((ids) => ({ type: 'extend' as const, ids, forMs })),
    )
    this.#asked.clear()
    return frames
  }

  #extendDue(nowMs: Millis, sessionNo: number): void {
    this.wakeAtMs = Infinity
    for (const [message, dueAtMs] of this.#held) {
      const isDue = nowMs >= dueAtMs
      if (isDue && message.sessionNo === sessionNo) this.extend(message, null)
      const nextAtMs = isDue ? nowMs + this.#leaseMs / 2 : dueAtMs
      this.#held.set(message, nextAtMs)
      this.wakeAtMs = Math.min(this.wakeAtMs, nextAtMs)
    }
  }
}
