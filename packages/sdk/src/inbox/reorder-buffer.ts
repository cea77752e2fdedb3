/**
 * Holds messages that arrive before an earlier one of their stream, for a bounded time. Messages that a broker reordered
 * are handed out in order; a message that it dropped is reported as a gap when the time is over. Pure and synchronous.
 *
 * A lane is what one sender sends at one priority. It can hold several streams: a sender begins a new one after a refusal,
 * and each of its processes has its own. All messages of a lane wait behind a held one, or one of a new stream would
 * overtake it (P6).
 */
import type { Priority } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'
import type { ArrivedMessage } from './inbox.ts'

/**
 * Counts the held messages of all senders. Held messages use up the session's credit: without this bound, a sender that
 * leaves holes on purpose could block the mail of all others.
 */
const HELD_MAX = 64
/** A session has 1 MiB of unsettled messages by default. */
const HELD_BYTES_MAX = 256 * 1024
/** Far below the default lease, so that no held message is pushed again. */
export const HOLD_MS = 2_000

/** A message without a stream has no order, and is never held. */
export interface InLane extends ArrivedMessage {
  readonly priority: Priority
}

interface Held<M> {
  readonly message: M
  readonly lane: string
  readonly byteCount: number
  readonly dueAtMs: Millis
}

export class ReorderBuffer<M extends InLane> {
  /** Of all lanes; those of one lane stand in the order in which they are handed out. */
  #held: Held<M>[] = []
  readonly #heldMax: number

  /** `credit`: unsettled deliveries the broker may push. Held messages take a quarter at most, so that the missing one fits. */
  constructor(credit: number) {
    this.#heldMax = Math.min(HELD_MAX, credit >> 2)
  }

  get isEmpty(): boolean {
    return this.#held.length === 0
  }

  get wakeAtMs(): Millis {
    let atMs = Infinity
    for (const { dueAtMs } of this.#held) atMs = Math.min(atMs, dueAtMs)
    return atMs
  }

  /** Returns whether the message was held already, in which case this is another push of it. */
  hold(message: M, byteCount: number, nowMs: Millis): boolean {
    const lane = laneOf(message)
    const at = this.#held.findIndex((held) => held.lane === lane && held.message.envelopeId === message.envelopeId)
    const dueAtMs = at < 0 ? nowMs + HOLD_MS : this.#held.splice(at, 1)[0]!.dueAtMs
    this.#held.splice(this.#placeOf(message, lane), 0, { message, lane, byteCount, dueAtMs })
    return at >= 0
  }

  /** Takes the first held message of this one's lane if it may be handed out. */
  takeNext(of: M, mayPass: (message: M) => boolean): M | undefined {
    const lane = laneOf(of)
    const first = this.#held.find((held) => held.lane === lane)
    return first && mayPass(first.message) ? this.#take((held) => held === first)[0] : undefined
  }

  /** Takes messages held for `HOLD_MS` and those that precede them, in order; while a bound is exceeded, the oldest lanes whole. */
  takeDue(nowMs: Millis): M[] {
    const taken = this.#take(({ lane }, at) =>
      this.#held.some((later, i) => i >= at && later.lane === lane && nowMs >= later.dueAtMs),
    )
    while (this.#isCrowded) {
      const { lane: oldest } = this.#held[0]!
      taken.push(...this.#take(({ lane }) => lane === oldest))
    }
    return taken
  }

  /** Call it when the session ends: the broker pushes these messages again in the next one. */
  clear(): void {
    this.#held = []
  }

  #take(isTaken: (held: Held<M>, at: number) => boolean): M[] {
    const taken = this.#held.filter(isTaken)
    this.#held = this.#held.filter((held) => !taken.includes(held))
    return taken.map(({ message }) => message)
  }

  get #isCrowded(): boolean {
    const held = this.#held
    return held.length > this.#heldMax || held.reduce((sum, { byteCount }) => sum + byteCount, 0) > HELD_BYTES_MAX
  }

  /**
   * Where it belongs: in its stream by number, which the sender has sealed, and among other streams of its lane by delivery
   * id, which rises in the order of acceptance. A broker that lies about ids cannot change the order of a stream.
   */
  #placeOf({ deliveryId, stream }: M, lane: string): number {
    const { streamId, seq } = stream!
    const isOwn = (held: Held<M>) => held.lane === lane && held.message.stream!.streamId === streamId
    const from = this.#held.findLastIndex((held) => isOwn(held) && held.message.stream!.seq < seq) + 1
    const place = this.#held.findIndex(
      (held, i) =>
        i >= from &&
        held.lane === lane &&
        (isOwn(held) ? held.message.stream!.seq > seq : held.message.deliveryId > deliveryId),
    )
    return place < 0 ? this.#held.length : place
  }
}

const laneOf = ({ sender, priority }: InLane): string => sender + priority
