/** A message as its recipient's application sees it. */
import type { Note, StreamPosition } from '@sealpost/identity'
import type { FrameOf, Priority, ReceiptWish, Terms } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, Millis, PeerKey, PoolId } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { MessageGroup } from '../groups/group-client.ts'
import { type OutgoingMessage, postTermsOf, type Receipt, type SendOptions } from '../outbox/lane.ts'

/** What a message tells its owner; the pure engine implements it. */
export interface MessageActions {
  settle(message: Message): void
  retry(message: Message, afterMs: Millis): void
  reject(message: Message, reason: string): void
  /** Null: for a whole lease. */
  extend(message: Message, forMs: Millis | null): void
  post(post: OutgoingMessage): void
}

/** A delivery as it was pushed, by any of the three frames. */
export type PushedDelivery = FrameOf<'push'>['deliveries'][number] & {
  readonly terms?: Terms
  readonly body?: Uint8Array
}

export interface ReplyOptions extends Omit<SendOptions, 'thread' | 'hops'> {
  /** No person wrote it. It is refused as `no_auto_reply` where the sender wants none of these. */
  readonly isAutomatic?: boolean
}

export type OpenVerdict = OpenedEnvelope | { readonly ok: false; readonly reason: string }

export interface OpenedEnvelope {
  readonly ok: true
  readonly header: OpenedHeader
  /** What the next envelope of the stream has to carry as `prev`; null in no stream. */
  readonly headerHash: Uint8Array | null
  readonly note?: Note | null
  readonly body: Uint8Array
}

export interface OpenedHeader {
  readonly stream: StreamPosition | null
  readonly sentAtMs: Millis
}

export type OpenedMessage = OpenedEnvelope & { readonly group?: MessageGroup; readonly pool?: MessagePool }

/** As its sender addressed it. */
export interface MessagePool {
  readonly id: PoolId
  /** By whose members the sender sealed it. */
  readonly epoch: number
}

/** Whose a message is. */
export interface SenderUser {
  readonly user: PeerKey
  /** Null: the user's own key. */
  readonly deviceLabel: string | null
}

/** What a message is made of: what was pushed, what the envelope held, and when and in which session it came. */
export interface MessageParts {
  readonly pushed: PushedDelivery
  readonly opened: OpenedMessage
  readonly from: SenderUser
  readonly receivedAtMs: Millis
  readonly sessionNo: number
}

const encoder = new TextEncoder()
const decoder = new TextDecoder()

export class Message {
  /** Proven by the box: the holder of this key wrote it. */
  readonly sender: PeerKey
  /** Who vouches for the sender as a device of its own, proven by that user's signature; otherwise the sender itself. */
  readonly user: PeerKey
  /** What the user calls this device; null for the user's own key. */
  readonly deviceLabel: string | null
  readonly envelopeId: EnvelopeId
  /** The caller's own; nobody else holds it. */
  readonly body: Uint8Array
  readonly priority: Priority
  /** 1 for the first delivery. */
  readonly attempt: number
  /**
   * This peer rejected an earlier delivery of it, by its own memory. An operator redrove the dead letter, or a hostile broker
   * repeats it: each redrive follows a rejection, so settle what is not to come again.
   */
  isRedriven = false
  /** When the broker stored it, by its database's clock. */
  readonly enqueuedAtMs: Millis
  readonly receivedAtMs: Millis
  /** By the sender's clock, whole milliseconds. */
  readonly sentAtMs: Millis
  /** The group it was sent to; proven. Null: to this peer alone. */
  readonly group: MessageGroup | null
  /** The pool it was sent to, which gave it to this peer; proven. Null: to no pool. */
  readonly pool: MessagePool | null
  /** @internal */
  readonly stream: StreamPosition | null
  /** @internal */
  readonly headerHash: Uint8Array | null
  /** @internal Of the newest push of it. */
  deliveryId: DeliveryId
  /** @internal The session of that push. */
  sessionNo: number
  /** @internal */
  state: 'open' | 'settled' | 'put off' | 'rejected' = 'open'
  readonly #actions: MessageActions
  readonly #note: Note | null
  readonly #terms: Terms | null

  constructor(actions: MessageActions, { pushed, opened, from: whose, receivedAtMs, sessionNo }: MessageParts) {
    this.#actions = actions
    this.sender = pushed.sender
    this.user = whose.user
    this.deviceLabel = whose.deviceLabel
    this.envelopeId = pushed.envelopeId
    this.stream = opened.header.stream
    this.headerHash = opened.headerHash
    this.body = opened.body
    this.priority = pushed.priority
    this.attempt = pushed.attempt
    this.enqueuedAtMs = pushed.enqueuedAtMs
    this.receivedAtMs = receivedAtMs
    this.sentAtMs = opened.header.sentAtMs
    this.deliveryId = pushed.id
    this.sessionNo = sessionNo
    this.#note = opened.note ?? null
    this.group = opened.group ?? null
    this.pool = opened.pool ?? null
    this.#terms = pushed.terms ?? null
  }

  /** The conversation it belongs to, 32 hex digits; proven. Null: none. */
  get thread(): string | null {
    return this.#note?.thread ?? null
  }
  /** The envelope it answers; proven. Null: none. */
  get inReplyTo(): EnvelopeId | null {
    return this.#note?.inReplyTo ?? null
  }
  /** The reference to a file that goes with it, proven; `attachmentOf` reads it. Null: none. */
  get attachment(): string | null {
    return this.#note?.attachment ?? null
  }
  /** Its sender waits for an answer: `reply`, or `replyError`. */
  get isRequest(): boolean {
    return this.#note?.isRequest ?? false
  }
  /** It answers that what was asked for failed. */
  get isError(): boolean {
    return this.#note?.isError ?? false
  }
  /** Its sender sent it to every device of this user; null: it did not. */
  get toUser(): PeerKey | null {
    return this.#note?.user ?? null
  }
  /** How often its conversation has passed from peer to peer. This and the next two are the broker's word. */
  get hops(): number {
    return this.#terms?.hops ?? 0
  }
  /** Its sender wants no answer that no person wrote. */
  get noAutoReply(): boolean {
    return this.#terms?.noAutoReply ?? false
  }
  /** What its sender hears of its fate. */
  get receipts(): ReceiptWish {
    return this.#terms?.receipts ?? 'none'
  }

  /** The body read as UTF-8. */
  text(): string {
    return decoder.decode(this.body)
  }

  /** The application is done with it: it leaves the queue. Calling it again, or after `retry`, does nothing. */
  settle(): void {
    this.#actions.settle(this)
  }

  /** Gives it back; it is delivered again after `afterMs`. Calling it again, or after `settle`, does nothing. */
  retry(afterMs: Millis = 0): void {
    this.#actions.retry(this, afterMs)
  }

  /**
   * It will not be taken, for good: it goes to the dead letters. The broker reads the reason, of which 120 characters of
   * printable ASCII are said. Does nothing after `settle`, `retry` or `reject`.
   */
  reject(reason = ''): void {
    this.#actions.reject(this, reason)
  }

  /**
   * Still at work on it: it is not pushed to anybody for so long from now, at most 4 minutes. Default: a lease, as the
   * broker gives them. A handler of `onMessage` need not call it.
   */
  extend(forMs?: Millis): void {
    this.#actions.extend(this, forMs ?? null)
  }

  /**
   * Replies to its sender, in its thread and at its priority. Resolves when the answer is stored; the message itself is not
   * settled by it.
   * @throws SealpostError as `send`; `no_auto_reply`
   */
  reply(body: Uint8Array | string, options: ReplyOptions = {}): Promise<Receipt> {
    return this.#reply(body, options, { inReplyTo: this.envelopeId })
  }

  /** The same, saying that what was asked for failed. */
  replyError(text: string, options: ReplyOptions = {}): Promise<Receipt> {
    return this.#reply(text, options, { inReplyTo: this.envelopeId, isError: true })
  }

  #reply(body: Uint8Array | string, { isAutomatic, ...options }: ReplyOptions, note: Note): Promise<Receipt> {
    return new Promise((accepted, refused) => {
      if (isAutomatic && this.noAutoReply) throw unwanted()
      const { sender, priority, hops, thread } = this
      const asked = { priority, ...options, hops: hops + 1, ...(thread === null ? {} : { thread }) }
      this.#actions.post({ ...postTermsOf(sender, asked, note), body: bytesOf(body), accepted, refused })
    })
  }
}

export const bytesOf = (body: Uint8Array | string) => (typeof body === 'string' ? encoder.encode(body) : body)

function unwanted(): SealpostError {
  return new SealpostError('no_auto_reply', 'The sender of this message wants no automatic answer.')
}
