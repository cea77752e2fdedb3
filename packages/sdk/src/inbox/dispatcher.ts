/**
 * Messages on their way into the application: to its handler, or to whoever iterates, or kept until there is one. The
 * broker's credit bounds how many are kept.
 */
import type { Millis } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'
import type { PeerEvent } from '../events.ts'
import { Fifo } from '../outbox/fifo.ts'
import type { Message } from './message.ts'

export type MessageHandler = (message: Message) => unknown

type Step = IteratorResult<Message, undefined>
interface Reader {
  take(message: Message): void
  end(error: SealpostError | null): void
}

export interface DispatcherPorts {
  readonly emit: (event: PeerEvent) => void
  /** The application is at work on a message, and may be for long. */
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
    for (let message = this.#kept.shift(); message; message = this.#kept.shift()) this.#call(handler, message)
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
      const message = this.#kept.shift()
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
