/**
 * Messages that came before an earlier one of their stream. They wait for it a little: a broker that only mixed them up
 * costs a moment then, and one that dropped something is told as soon as the wait is over. Pure and synchronous.
 */
import type { EnvelopeId, Millis } from '@sealpost/std'
import type { ArrivedMessage } from './inbox.ts'

/** Of one stream. */
const HELD_MAX = 64
/** Far below a lease by default, so that nothing is pushed a second time for it. */
export const HOLD_MS = 2_000

interface Held<M> {
  readonly message: M
  readonly dueAtMs: Millis
}
/** In the order they came. */
type HeldStream<M> = Map<EnvelopeId, Held<M>>

export class EarlyMail<M extends ArrivedMessage> {
  private readonly streams = new Map<string, HeldStream<M>>()

  get wakeAtMs(): Millis {
    let wakeAtMs = Infinity
    for (const held of this.streams.values()) wakeAtMs = Math.min(wakeAtMs, held.values().next().value!.dueAtMs)
    return wakeAtMs
  }

  /** Answers whether it was held already; then this is another push of it. */
  hold(message: M, nowMs: Millis): boolean {
    const held = this.streamOf(message)
    const former = held.get(message.envelopeId)
    held.set(message.envelopeId, { message, dueAtMs: former?.dueAtMs ?? nowMs + HOLD_MS })
    return former !== undefined
  }

  /** Takes the one that stands next behind this in its stream. */
  takeAfter({ sender, stream }: M): M | undefined {
    if (this.streams.size === 0 || !stream) return undefined
    const key = keyOf(sender, stream.streamId)
    for (const { message } of this.streams.get(key)?.values() ?? [])
      if (message.stream!.seq === stream.seq + 1) return this.take(key, message)
    return undefined
  }

  /** Takes what waited long enough, or stands in a stream of which too many wait, and what stands before it; in order. */
  takeDue(nowMs: Millis): M[] {
    const taken: M[] = []
    for (const [key, held] of this.streams) {
      const due = [...held.values()].filter(({ dueAtMs }) => nowMs >= dueAtMs || held.size >= HELD_MAX)
      const last = Math.max(0, ...due.map(({ message }) => message.stream!.seq))
      const going = [...held.values()].filter(({ message }) => message.stream!.seq <= last)
      const messages = going.map(({ message }) => this.take(key, message))
      taken.push(...messages.sort((a, b) => a.stream!.seq - b.stream!.seq))
    }
    return taken
  }

  /** The session ended: what waited is pushed again. */
  clear(): void {
    this.streams.clear()
  }

  private streamOf({ sender, stream }: M): HeldStream<M> {
    const key = keyOf(sender, stream!.streamId)
    const held = this.streams.get(key) ?? new Map()
    this.streams.set(key, held)
    return held
  }

  private take(key: string, message: M): M {
    const held = this.streams.get(key)!
    held.delete(message.envelopeId)
    if (held.size === 0) this.streams.delete(key)
    return message
  }
}

const keyOf = (sender: string, streamId: string): string => sender + streamId
