/** A message as its recipient's application sees it. */
import type { StreamPosition } from '@sealpost/identity'
import type { FrameOf, Priority } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, Millis, PeerKey } from '@sealpost/std'
import type { OpenedHeader } from './ports.ts'

/** What a message tells its owner; the pure engine implements it. */
export interface MessageDesk {
  settle(message: Message): void
  retry(message: Message, afterMs: Millis): void
}

/** What a message is made of: what was pushed, what the envelope held, and when and in which session it came. */
export interface Arrival {
  readonly pushed: FrameOf<'push'>['deliveries'][number]
  readonly opened: { readonly header: OpenedHeader; readonly body: Uint8Array }
  readonly receivedAtMs: Millis
  readonly sessionNo: number
}

const decoder = new TextDecoder()

export class Message {
  /** Proven by the box; whoever holds this key wrote it. */
  readonly sender: PeerKey
  readonly envelopeId: EnvelopeId
  /** The caller's own; nobody else holds it. */
  readonly body: Uint8Array
  readonly priority: Priority
  /** 1 for the first delivery. */
  readonly attempt: number
  /** When the broker stored it, by its database's clock. */
  readonly enqueuedAtMs: Millis
  readonly receivedAtMs: Millis
  /** By the sender's clock, whole milliseconds. */
  readonly sentAtMs: Millis
  /** @internal */
  readonly stream: StreamPosition | null
  /** @internal Of the newest push of it. */
  deliveryId: DeliveryId
  /** @internal The session of that push. */
  sessionNo: number
  /** @internal */
  state: 'open' | 'settled' | 'put off' = 'open'
  readonly #desk: MessageDesk

  constructor(desk: MessageDesk, { pushed, opened, receivedAtMs, sessionNo }: Arrival) {
    this.#desk = desk
    this.sender = pushed.sender
    this.envelopeId = pushed.envelopeId
    this.stream = opened.header.stream
    this.body = opened.body
    this.priority = pushed.priority
    this.attempt = pushed.attempt
    this.enqueuedAtMs = pushed.enqueuedAtMs
    this.receivedAtMs = receivedAtMs
    this.sentAtMs = opened.header.sentAtMs
    this.deliveryId = pushed.id
    this.sessionNo = sessionNo
  }

  /** The body read as UTF-8. */
  text(): string {
    return decoder.decode(this.body)
  }

  /** The application is done with it: it leaves the queue. Calling it again, or after `retry`, does nothing. */
  settle(): void {
    this.#desk.settle(this)
  }

  /** Gives it back; it is delivered again after `afterMs`. Calling it again, or after `settle`, does nothing. */
  retry(afterMs: Millis = 0): void {
    this.#desk.retry(this, afterMs)
  }
}
