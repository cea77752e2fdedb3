/**
 * What was given back to the broker unopened, since it could not be opened yet. What comes after it in its lane is put off
 * behind it, or the first message of a lane would be handed out after the second (P6). Pure and synchronous.
 */
import type { Priority } from '@sealpost/protocol'
import type { DeliveryId, Millis, PeerKey } from '@sealpost/std'

/** A delivery, and the lane it came in. A lane's ids rise in the order in which its envelopes were accepted. */
export interface LaneDelivery {
  readonly id: DeliveryId
  readonly sender: PeerKey
  readonly priority: Priority
}

interface Deferral {
  readonly priority: Priority
  /** When it was put off first. */
  readonly sinceMs: Millis
  readonly dueAtMs: Millis
}

/** Of one sender. Of more the first ones are known, and the broker's own order must do for the others. */
const DEFERRED_MAX = 1_024
/** As long as a lease by default: what has not come back by then died meanwhile. */
export const GRACE_MS = 30_000
/** Nobody waits longer for one that is put off over and over. */
export const BEHIND_MAX_MS = 120_000
/** The pause when what it waits for is due and not here yet; it grows, because every pause is a strike. */
const AGAIN_MS = 1_000

export class Deferrals {
  readonly #senders = new Map<PeerKey, Map<DeliveryId, Deferral>>()

  defer({ id, sender, priority }: LaneDelivery, { afterMs, nowMs }: { afterMs: Millis; nowMs: Millis }): void {
    const offs = this.#senders.get(sender) ?? new Map<DeliveryId, Deferral>()
    this.#senders.set(sender, offs)
    const former = offs.get(id)
    if (former || offs.size < DEFERRED_MAX)
      offs.set(id, { priority, sinceMs: former?.sinceMs ?? nowMs, dueAtMs: nowMs + afterMs })
  }

  /** How long this must wait for what is put off before it in its lane; 0: it need not. */
  waitMs({ id, sender, priority }: LaneDelivery, nowMs: Millis): Millis {
    const offs = this.#senders.size > 0 && this.#senders.get(sender)
    if (!offs) return 0
    let dueAtMs = -Infinity
    for (const [earlier, off] of offs) {
      if (nowMs >= off.dueAtMs + GRACE_MS) this.release(sender, earlier)
      else if (earlier < id && off.priority === priority && nowMs < off.sinceMs + BEHIND_MAX_MS)
        dueAtMs = Math.max(dueAtMs, off.dueAtMs)
    }
    if (dueAtMs === -Infinity) return 0
    return nowMs < dueAtMs ? dueAtMs - nowMs : Math.max(AGAIN_MS, nowMs - dueAtMs)
  }

  /** It came again and could be opened, or never will. */
  release(sender: PeerKey, id: DeliveryId): void {
    const offs = this.#senders.get(sender)
    if (offs?.delete(id) && offs.size === 0) this.#senders.delete(sender)
  }

  /** Ids of another incarnation of the broker are other deliveries. */
  clear(): void {
    this.#senders.clear()
  }
}
