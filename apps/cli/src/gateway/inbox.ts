/**
 * Passes each message of the profile to one consumer: a webhook, or a caller with an open event stream. A message whose
 * consumer disconnects goes to another consumer.
 */
import type { Message } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import { messageIdOf } from '../messages/incoming-message.ts'

export interface HeldMessage {
  /** Derived from sender and envelope, and so the same after a restart. */
  readonly messageId: string
  readonly message: Message
}

/** Accepts a message. Returns false if the message is not meant for this consumer. */
export type Consume = (held: HeldMessage) => boolean

interface Consumer {
  readonly consume: Consume
  /** The ids of the messages that this consumer holds. */
  readonly holds: Set<string>
}

interface Held extends HeldMessage {
  readonly done: PromiseWithResolvers<void>
  consumer: Consumer | null
}

export class GatewayInbox {
  /** Called when a consumer takes a message. */
  onTaken: (message: Message) => void = () => undefined
  readonly #held = new Map<string, Held>()
  readonly #consumers: Consumer[] = []

  get waiting(): number {
    return [...this.#held.values()].filter(({ consumer }) => consumer === null).length
  }
  get open(): number {
    return this.#held.size
  }

  /** Adds a message. Resolves when it is settled, returned or rejected, until when its lease is extended. */
  add(message: Message): Promise<void> {
    const messageId = idOf(message)
    const held: Held = { messageId, message, done: Promise.withResolvers(), consumer: null }
    this.#held.get(messageId)?.done.resolve() // a redelivery replaces the earlier delivery
    this.#held.set(messageId, held)
    this.#offer(held)
    return held.done.promise
  }

  /** Removes a message that another session of the profile is given, because no consumer has taken it. */
  withdraw(message: Message): void {
    const messageId = idOf(message)
    if (!this.isHeld({ messageId, message })) return
    this.#held.get(messageId)!.done.resolve()
    this.#held.delete(messageId)
  }

  /** Returns whether nobody has ended this delivery of the message. */
  isHeld({ messageId, message }: HeldMessage): boolean {
    return this.#held.get(messageId)?.message === message
  }

  /** Adds a consumer, and passes the waiting messages to it. Returns a function that removes it. */
  connect(consume: Consume): () => void {
    const consumer: Consumer = { consume, holds: new Set() }
    this.#consumers.push(consumer)
    for (const held of this.#held.values()) if (held.consumer === null) this.#offer(held)
    return () => {
      this.#consumers.splice(this.#consumers.indexOf(consumer), 1)
      for (const id of consumer.holds) this.#release(id)
    }
  }

  /** @throws OperatingError `message_unknown` */
  find(messageId: string): Message {
    const held = this.#held.get(messageId)
    if (held) return held.message
    throw new OperatingError('message_unknown', 'There is no open message with this id.')
  }

  /** Ends a message: `end` settles, returns or rejects it. @throws OperatingError `message_unknown` */
  finish(messageId: string, end: (message: Message) => void): void {
    end(this.find(messageId))
    const held = this.#held.get(messageId)!
    this.#held.delete(messageId)
    held.consumer?.holds.delete(messageId)
    held.done.resolve()
  }

  #release(messageId: string): void {
    const held = this.#held.get(messageId)
    if (!held) return
    held.consumer = null
    this.#offer(held)
  }

  /** Offers a message to the consumers with the fewest messages first. */
  #offer(held: Held): void {
    const byLoad = this.#consumers.toSorted((a, b) => a.holds.size - b.holds.size)
    const consumer = byLoad.find(({ consume }) => consume(held))
    if (!consumer) return
    held.consumer = consumer
    consumer.holds.add(held.messageId)
    this.onTaken(held.message)
  }
}

const idOf = (message: Message): string => messageIdOf(message, 32)
