/**
 * Passes messages to the application's handler or iterator, or queues them until there is one. The credit limits the
 * queue.
 */
import type { Priority } from '@sealpost/protocol'
import type { DeliveryId, Millis, PeerKey } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'
import { Fifo } from '../outbox/lane.ts'
import type { PeerEvent } from '../ports.ts'
import type { Message } from './message.ts'

export type MessageHandler = (message: Message) => unknown

type Step = IteratorResult<Message, undefined>
interface Reader {
  take(message: Message): void
  end(error: SealpostError | null): void
}

export interface DispatcherPorts {
  readonly emit: (event: PeerEvent) => void
  /** Called when the application begins to process a message, which may take a long time. */
  readonly hold: (message: Message) => void
}

const RETRY_BASE_MS = 1_000
const RETRY_MAX_MS = 300_000
const DONE: Step = { done: true, value: undefined }

export class Dispatcher {
  readonly #ports: DispatcherPorts
  readonly #kept = new Fifo<Message>()
  readonly #readers = new Fifo<Reader>()
  #handler: MessageHandler | null = null
  #ending: { error: SealpostError | null } | null = null

  constructor(ports: DispatcherPorts) {
    this.#ports = ports
  }

  deliver(message: Message): void {
    if (this.#handler) return this.#call(this.#handler, message)
    const reader = this.#readers.shift()
    if (reader) reader.take(message)
    else this.#kept.push(message)
  }

  use(handler: MessageHandler): () => void {
    this.#handler = handler
    for (let message = this.#shift(); message; message = this.#shift()) this.#call(handler, message)
    return () => {
      if (this.#handler === handler) this.#handler = null
    }
  }

  iterate(): AsyncIterator<Message, undefined> {
    let last: Message | null = null
    return {
      next: () => {
        last?.settle()
        return this.#read((message) => {
          last = message
        })
      },
      return: () => {
        last?.retry()
        return Promise.resolve(DONE)
      },
    }
  }

  end(error: SealpostError | null): void {
    this.#ending = { error }
    for (let reader = this.#readers.shift(); reader; reader = this.#readers.shift()) reader.end(error)
  }

  /** Returns the next queued message that its session still has. */
  #shift(): Message | undefined {
    for (;;) {
      const message = this.#kept.shift()
      if (message?.state !== 'put off') return message
    }
  }

  #read(note: (message: Message) => void): Promise<Step> {
    return new Promise((resolve, reject) => {
      const reader: Reader = {
        take: (message) => {
          this.#ports.hold(message)
          note(message)
          resolve({ done: false, value: message })
        },
        end: (error) => (error ? reject(error) : resolve(DONE)),
      }
      const message = this.#shift()
      if (message) reader.take(message)
      else if (this.#ending) reader.end(this.#ending.error)
      else this.#readers.push(reader)
    })
  }

  #call(handler: MessageHandler, message: Message): void {
    let answer: unknown
    try {
      answer = handler(message)
    } catch (cause) {
      return this.#failed(message, cause)
    }
    if (!isPromise(answer)) return message.settle()
    this.#ports.hold(message)
    answer.then(
      () => message.settle(),
      (cause) => this.#failed(message, cause),
    )
  }

  #failed(message: Message, cause: unknown): void {
    const { sender, envelopeId } = message
    message.retry(retryMs(message.attempt))
    this.#ports.emit({ type: 'handler_failed', sender, envelopeId, cause })
  }
}

function retryMs(attempt: number): Millis {
  return Math.min(RETRY_MAX_MS, RETRY_BASE_MS * 2 ** Math.min(attempt - 1, 16))
}

function isPromise(answer: unknown): answer is PromiseLike<unknown> {
  return typeof (answer as PromiseLike<unknown> | undefined)?.then === 'function'
}

/** A delivery and its lane, in which ids ascend in the order of acceptance. */
interface LaneDelivery {
  readonly id: DeliveryId
  readonly sender: PeerKey
  readonly priority: Priority
}

interface Deferral {
  readonly priority: Priority
  /** When the delivery was first deferred. */
  readonly sinceMs: Millis
  readonly dueAtMs: Millis
}

/** The maximum number of tracked deliveries per sender. The broker's order applies to later ones. */
const DEFERRED_MAX = 1_024
/** How long a deferred delivery may take to return: the default lease. After that, it counts as expired. */
export const GRACE_MS = 30_000
/** How long a message waits for one that is deferred repeatedly. */
export const BEHIND_MAX_MS = 120_000
/**
 * The first pause if the awaited delivery is overdue. Pauses increase, because each return counts as a failed attempt.
 */
const AGAIN_MS = 1_000

/**
 * Tracks deliveries that were returned to the broker because they could not be opened yet. Later deliveries in the same
 * lane are deferred behind them; otherwise, the first message of a lane could be handed out after the second (P6). Pure
 * and synchronous.
 */
export class Deferrals {
  readonly #senders = new Map<PeerKey, Map<DeliveryId, Deferral>>()

  defer({ id, sender, priority }: LaneDelivery, { afterMs, nowMs }: { afterMs: Millis; nowMs: Millis }): void {
    const offs = this.#senders.get(sender) ?? new Map<DeliveryId, Deferral>()
    this.#senders.set(sender, offs)
    const former = offs.get(id)
    if (former || offs.size < DEFERRED_MAX)
      offs.set(id, { priority, sinceMs: former?.sinceMs ?? nowMs, dueAtMs: nowMs + afterMs })
  }

  /** Returns how long this delivery must wait for deferred ones in its lane; 0 if there are none. */
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

  /** Call when the delivery has been opened, or can never be opened. */
  release(sender: PeerKey, id: DeliveryId): void {
    const offs = this.#senders.get(sender)
    if (offs?.delete(id) && offs.size === 0) this.#senders.delete(sender)
  }

  /** Forgets all deliveries, because a restored database reuses their numbers. */
  clear(): void {
    this.#senders.clear()
  }
}
