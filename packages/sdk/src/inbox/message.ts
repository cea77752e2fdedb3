import type { Note, StreamPosition } from '@sealpost/identity'
import type { FrameOf, Priority, ReceiptWish, Terms } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, GroupId, Millis, PeerKey, PoolId } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import {
  type OutgoingMessage,
  type OutgoingTerms,
  postTermsOf,
  type Receipt,
  type SendOptions,
} from '../outbox/lane.ts'

export interface MessageActions {
  settle(message: Message): void
  retry(message: Message, afterMs: Millis): void
  reject(message: Message, reason: string): void
  /** Extends the lease to `forMs` from now; null means a full lease. */
  extend(message: Message, forMs: Millis | null): void
  post(post: OutgoingMessage): void
}

/** A pushed delivery, from any of the three push frames. */
export type PushedDelivery = FrameOf<'push'>['deliveries'][number] & {
  readonly terms?: Terms
  readonly body?: Uint8Array
}

export interface ReplyOptions extends Omit<SendOptions, 'thread' | 'hops'> {
  /** Whether the reply is automatic. It is refused as `no_auto_reply` if the sender declined such replies. */
  readonly isAutomatic?: boolean
}

export type OpenVerdict = OpenedEnvelope | { readonly ok: false; readonly reason: string }

export interface OpenedEnvelope {
  readonly ok: true
  readonly header: OpenedHeader
  /** The `prev` that the next envelope in the stream must have; null if there is no stream. */
  readonly headerHash: Uint8Array | null
  readonly note?: Note | null
  readonly body: Uint8Array
}

export interface OpenedHeader {
  readonly stream: StreamPosition | null
  readonly sentAtMs: Millis
}

export type OpenedMessage = OpenedEnvelope & {
  readonly group?: MessageGroup
  readonly pool?: MessagePool
  readonly bodyId?: string
}

/** The group of a received message, authenticated by the sender's box and the owner's signature. */
export interface MessageGroup {
  readonly id: GroupId
  readonly name: string
  /** The epoch of the statement that the sender used. */
  readonly epoch: number
}

/** The pool that the sender addressed. */
export interface MessagePool {
  readonly id: PoolId
  /** The epoch of the statement that the sender used. */
  readonly epoch: number
}

export interface SenderUser {
  readonly user: PeerKey
  /** Null for the user's own key. */
  readonly deviceLabel: string | null
}

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
  /** The author, authenticated by the box. */
  readonly sender: PeerKey
  /** The user whose signature vouches for the sender as a device; otherwise, the sender itself. */
  readonly user: PeerKey
  /** The user's name for this device; null for the user's own key. */
  readonly deviceLabel: string | null
  readonly envelopeId: EnvelopeId
  /** The decrypted body. The caller owns it. */
  readonly body: Uint8Array
  readonly priority: Priority
  /** The number of the attempt; 1 for the first one. */
  readonly attempt: number
  /**
   * Whether this peer remembers that it rejected an earlier delivery of the message. Either an operator has redriven
   * the dead letter, or a hostile broker repeats it. Only rejected messages are redriven, so settle a message that must
   * not arrive again.
   */
  isRedriven = false
  /** @internal Whether the application has not taken the message, although its lease is extended. */
  isUnread = false
  /** When the broker stored the message, according to its database clock. */
  readonly enqueuedAtMs: Millis
  readonly receivedAtMs: Millis
  /** When the message was sent, according to the sender's clock, in whole milliseconds. */
  readonly sentAtMs: Millis
  /** The group to which the message was sent, authenticated by the sender; null if there is none. */
  readonly group: MessageGroup | null
  /** The pool to which the message was sent, authenticated by the sender; null if there is none. */
  readonly pool: MessagePool | null
  /** @internal The id of the body that all devices of `toUser` receive; null if the message was not sent to a user. */
  readonly bodyId: string | null
  /** @internal */
  readonly stream: StreamPosition | null
  /** @internal */
  readonly headerHash: Uint8Array | null
  /** @internal */
  readonly note: Note | null
  /** @internal */
  deliveryId: DeliveryId
  /** @internal The session in which the newest push arrived. */
  sessionNo: number
  /** @internal */
  state: 'open' | 'settled' | 'put off' | 'rejected' = 'open'
  readonly #actions: MessageActions
  readonly #terms: Terms | null

  /** @internal */
  constructor(actions: MessageActions, { pushed, opened, from: whose, receivedAtMs, sessionNo }: MessageParts) {
    this.#actions = actions
    this.sender = pushed.sender
    this.user = whose.user
    this.deviceLabel = whose.deviceLabel
    this.envelopeId = pushed.envelopeId
    this.bodyId = opened.bodyId ?? null
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
    this.note = opened.note ?? null
    this.group = opened.group ?? null
    this.pool = opened.pool ?? null
    this.#terms = pushed.terms ?? null
  }

  /**
   * The conversation to which the message belongs (32 hex digits), authenticated by the sender; null if there is none.
   */
  get thread(): string | null {
    return this.note?.thread ?? null
  }
  /** The envelope that the message replies to, as authenticated by the sender. Null if it is not a reply. */
  get inReplyTo(): EnvelopeId | null {
    return this.note?.inReplyTo ?? null
  }
  /** The reference to an attached file, authenticated by the sender, for `attachmentOf`. Null if there is none. */
  get attachment(): string | null {
    return this.note?.attachment ?? null
  }
  /** Whether the sender waits for `reply` or `replyError`. */
  get isRequest(): boolean {
    return this.note?.isRequest ?? false
  }
  /** Whether the message reports that a request failed. */
  get isError(): boolean {
    return this.note?.isError ?? false
  }
  /** The user to whose devices the message was sent; null if it was not sent to a user. */
  get toUser(): PeerKey | null {
    return this.note?.user ?? null
  }
  /** How often the conversation has passed from peer to peer, according to the broker. */
  get hops(): number {
    return this.#terms?.hops ?? 0
  }
  /** Whether the sender declines automatic replies. */
  get noAutoReply(): boolean {
    return this.#terms?.noAutoReply ?? false
  }
  /** Which receipts the sender requested. */
  get receipts(): ReceiptWish {
    return this.#terms?.receipts ?? 'none'
  }

  /**
   * Decodes the body as UTF-8.
   * @example console.log(message.text())
   */
  text(): string {
    return decoder.decode(this.body)
  }

  /**
   * Settles the message, which removes it from the queue. Has no effect after `settle`, `retry` or `reject`.
   * @example message.settle()
   */
  settle(): void {
    this.#actions.settle(this)
  }

  /**
   * Returns the message to the queue for `afterMs`. Has no effect after `settle`, `retry` or `reject`.
   * @example message.retry(60_000)
   */
  retry(afterMs: Millis = 0): void {
    this.#actions.retry(this, afterMs)
  }

  /**
   * Rejects the message permanently, which makes it a dead letter. The broker reads the reason, up to 120 characters of
   * printable ASCII. Has no effect after `settle`, `retry` or `reject`.
   * @example message.reject('not for me')
   */
  reject(reason = ''): void {
    this.#actions.reject(this, reason)
  }

  /**
   * Extends the lease to `forMs` from now, at most 4 minutes. Until then, no other peer receives the message. Default:
   * the broker's lease. A handler of `onMessage` need not call this.
   * @example message.extend(3 * 60_000)
   */
  extend(forMs?: Millis): void {
    this.#actions.extend(this, forMs ?? null)
  }

  /**
   * Replies to the sender, in the message's thread and at its priority. If the sender is a device that has been ended,
   * replies to its user instead. Resolves when the reply is stored. Does not settle the message.
   * @throws SealpostError `no_auto_reply`, and the errors of `send`
   * @example await message.reply('Yes', { isAutomatic: true })
   */
  reply(body: Uint8Array | string, options: ReplyOptions = {}): Promise<Receipt> {
    return this.#reply(body, options, { inReplyTo: this.envelopeId })
  }

  /**
   * Replies that the request failed.
   * @example await message.replyError('no such file')
   */
  replyError(text: string, options: ReplyOptions = {}): Promise<Receipt> {
    return this.#reply(text, options, { inReplyTo: this.envelopeId, isError: true })
  }

  #reply(body: Uint8Array | string, options: ReplyOptions, note: Note): Promise<Receipt> {
    return new Promise((accepted, refused) =>
      this.#actions.post({ ...replyTermsOf(this, options, note), body: bytesOf(body), accepted, refused }),
    )
  }
}

/** If the sender is a device that has been ended, its user gets the reply. @throws SealpostError `no_auto_reply` @internal */
export function replyTermsOf(message: Message, { isAutomatic, ...options }: ReplyOptions, note: Note): OutgoingTerms {
  const { sender, user, priority, hops, thread, noAutoReply } = message
  if (isAutomatic && noAutoReply) throw new SealpostError('no_auto_reply', 'The sender accepts no automatic replies.')
  const asked = { priority, ...options, hops: hops + 1, ...(thread && { thread }) }
  return { ...postTermsOf(sender, asked, note), ...(user !== sender && { fallback: user }) }
}

export const bytesOf = (body: Uint8Array | string) => (typeof body === 'string' ? encoder.encode(body) : body)
