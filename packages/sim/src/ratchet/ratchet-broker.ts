/** Simulates what a ratchet sees of a broker: a directory of prekeys, and queues that deliver at least once. */

import type { OneTimePrekey, PrekeyBundle } from '@sealpost/identity/ratchet'
import { toHex } from '@sealpost/std'

export interface QueuedMessage {
  readonly envelopeId: string
  readonly from: number
  readonly to: number
  readonly lane: number
  /** Whether the bytes are of `SharedMail`. */
  readonly isShared: boolean
  readonly bytes: Uint8Array
  readonly atMs: number
}

/** The report that a sender gets of a message that left the queue. `settled`, or the code of its refusal. */
export interface SenderReport {
  readonly envelopeId: string
  readonly code: string
}

const TTL_MS = 14 * 86_400_000

export class RatchetBroker {
  queue: QueuedMessage[] = []
  deadLetters: QueuedMessage[] = []
  readonly reports: SenderReport[] = []
  readonly #directory = new Map<number, { statement: Uint8Array; oneTime: OneTimePrekey[] }>()
  /** The hash of each accepted envelope, by id. */
  readonly #accepted = new Map<string, string>()
  readonly #violated: (text: string) => void

  constructor(violated: (text: string) => void) {
    this.#violated = violated
  }

  publish(peer: number, statement: Uint8Array, oneTime: OneTimePrekey[]): void {
    this.#directory.set(peer, { statement, oneTime })
  }

  oneTimeCount(peer: number): number {
    return this.#directory.get(peer)!.oneTime.length
  }

  /** Hands out each one-time prekey once. */
  bundleOf(peer: number): PrekeyBundle {
    const { statement, oneTime } = this.#directory.get(peer)!
    return { statement, oneTime: oneTime.shift() ?? null }
  }

  send(message: QueuedMessage): void {
    const hex = toHex(message.bytes)
    const known = this.#accepted.get(message.envelopeId)
    if (known !== undefined) {
      if (known !== hex) this.#violated(`resend: ${message.envelopeId} was sealed twice`)
      return
    }
    this.#accepted.set(message.envelopeId, hex)
    this.queue.push(message)
  }

  hasAccepted(envelopeId: string): boolean {
    return this.#accepted.has(envelopeId)
  }

  settle(message: QueuedMessage): void {
    this.#end(message, 'settled')
  }

  reject(message: QueuedMessage, code: string): void {
    this.#end(message, code)
    this.deadLetters.push(message)
  }

  #end({ envelopeId: id }: QueuedMessage, code: string): void {
    this.queue = this.queue.filter(({ envelopeId }) => envelopeId !== id)
    this.reports.push({ envelopeId: id, code })
  }

  redrive(nowMs: number): number {
    const count = this.deadLetters.length
    this.queue.push(...this.deadLetters.map((message) => ({ ...message, atMs: nowMs })))
    this.deadLetters = []
    return count
  }

  /** Ends what waited too long. Both sides get a report. Returns the ended messages. */
  expire(nowMs: number): QueuedMessage[] {
    const late = this.queue.filter(({ atMs }) => nowMs - atMs > TTL_MS)
    this.queue = this.queue.filter((message) => !late.includes(message))
    this.reports.push(...late.map(({ envelopeId }) => ({ envelopeId, code: 'expired' })))
    return late
  }
}
