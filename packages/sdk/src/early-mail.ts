/**
 * Messages that came before an earlier one of their stream. They wait for it a little: a broker that only mixed them up
 * costs a moment then, and one that dropped something is told as soon as the wait is over. Pure and synchronous.
 */
import type { EnvelopeId, Millis } from '@sealpost/std'
import type { ArrivedMessage } from './inbox.ts'

/**
 * Of all streams. What waits here fills the window of the session: a sender that leaves holes on purpose, in as many
 * streams as it likes, would keep everybody else's mail out of it.
 */
const HELD_MAX = 64
/** Of the megabyte that a session may have by default. */
const HELD_BYTES_MAX = 256 * 1024
/** Far below a lease by default, so that nothing is pushed a second time for it. */
export const HOLD_MS = 2_000

interface Held<M> {
  readonly message: M
  readonly byteCount: number
  readonly dueAtMs: Millis
}
/** In the order they came. */
type HeldStream<M> = Map<EnvelopeId, Held<M>>

export class EarlyMail<M extends ArrivedMessage> {
  private readonly streams = new Map<string, HeldStream<M>>()
  readonly #heldMax: number
  #count = 0
  #byteCount = 0

  /** `credit`: what the session may have. With next to none, what a message waits for would find no place. */
  constructor(credit: number) {
    this.#heldMax = Math.min(HELD_MAX, credit >> 2)
  }

  get wakeAtMs(): Millis {
    let wakeAtMs = Infinity
    for (const held of this.streams.values()) wakeAtMs = Math.min(wakeAtMs, held.values().next().value!.dueAtMs)
    return wakeAtMs
  }

  /** Answers whether it was held already; then this is another push of it. */
  hold(message: M, byteCount: number, nowMs: Millis): boolean {
    const held = this.#streamOf(message)
    const former = held.get(message.envelopeId)
    held.set(message.envelopeId, { message, byteCount, dueAtMs: former?.dueAtMs ?? nowMs + HOLD_MS })
    this.#byteCount += byteCount - (former?.byteCount ?? 0)
    if (!former) this.#count += 1
    return former !== undefined
  }

  /** Takes the one that stands next behind this in its stream. */
  takeAfter({ sender, stream }: M): M | undefined {
    if (this.streams.size === 0 || !stream) return undefined
    const key = keyOf(sender, stream.streamId)
    for (const { message } of this.streams.get(key)?.values() ?? [])
      if (message.stream!.seq === stream.seq + 1) return this.#take(key, message)
    return undefined
  }

  /** Takes what waited long enough and what stands before it, in order; while too many wait, the oldest streams whole. */
  takeDue(nowMs: Millis): M[] {
    const taken: M[] = []
    for (const [key, held] of this.streams) {
      const isCrowded = this.#count > this.#heldMax || this.#byteCount > HELD_BYTES_MAX
      const due = [...held.values()].filter(({ dueAtMs }) => nowMs >= dueAtMs || isCrowded)
      const last = Math.max(0, ...due.map(({ message }) => message.stream!.seq))
      const going = [...held.values()].filter(({ message }) => message.stream!.seq <= last)
      const messages = going.map(({ message }) => this.#take(key, message))
      taken.push(...messages.sort((a, b) => a.stream!.seq - b.stream!.seq))
    }
    return taken
  }

  /** The session ended: what waited is pushed again. */
  clear(): void {
    this.streams.clear()
    this.#count = 0
    this.#byteCount = 0
  }

  #streamOf({ sender, stream }: M): HeldStream<M> {
    const key = keyOf(sender, stream!.streamId)
    const held = this.streams.get(key) ?? new Map()
    this.streams.set(key, held)
    return held
  }

  #take(key: string, message: M): M {
    const held = this.streams.get(key)!
    this.#byteCount -= held.get(message.envelopeId)!.byteCount
    this.#count -= 1
    held.delete(message.envelopeId)
    if (held.size === 0) this.streams.delete(key)
    return message
  }
}

const keyOf = (sender: string, streamId: string): string => sender + streamId
