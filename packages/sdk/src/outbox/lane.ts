/**
 * Implements lanes, and builds the frames that contain their messages. A lane consists of the messages from one peer to
 * one recipient at one priority. Order is guaranteed only within a lane.
 *
 * A post waits unsealed until the window admits it. It is sealed once; with a store, the sealed bytes are stored before
 * they are sent. The resulting entry is in flight (the broker owes a reply in this session) or at rest (it was nacked,
 * or its session has ended) until it has its final reply.
 */
import { NO_PREV, type Note, type StreamId, type StreamPosition } from '@sealpost/identity'
import {
  BATCH_MAX,
  FANOUT_MAX,
  FRAME_BYTES_MAX,
  type FrameOf,
  NO_THREAD,
  type Priority,
  type ReceiptWish,
  type SendTerms,
} from '@sealpost/protocol'
import { type EnvelopeId, type GroupId, isHex, type Millis, type PeerKey } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'

/** A queue in an array. `shift` on a plain array would move all later items. */
export class Fifo<T> {
  #items: (T | undefined)[] = []
  #head = 0

  get length(): number {
    return this.#items.length - this.#head
  }

  push(item: T): void {
    this.#items.push(item)
  }

  peek(): T | undefined {
    return this.#items[this.#head]
  }

  shift(): T | undefined {
    const item = this.#items[this.#head]
    if (this.#head === this.#items.length) return undefined
    this.#items[this.#head] = undefined
    this.#head += 1
    if (this.#head === this.#items.length) this.clear()
    else if (this.#head > 256 && this.#head * 2 > this.#items.length) this.#compact()
    return item
  }

  clear(): void {
    this.#items = []
    this.#head = 0
  }

  *[Symbol.iterator](): IterableIterator<T> {
    for (let i = this.#head; i < this.#items.length; i++) yield this.#items[i]!
  }

  #compact(): void {
    this.#items = this.#items.slice(this.#head)
    this.#head = 0
  }
}

/** The durable acknowledgement of one message. Times are according to the sender's clock. */
export interface Receipt {
  readonly envelopeId: EnvelopeId
  /** Whether an earlier attempt, whose reply was lost, had already stored the message. */
  readonly isDuplicate: boolean
  /** When the window admitted the message, just before it was sealed. */
  readonly admittedAtMs: Millis
  readonly ackedAtMs: Millis
}

/** The fields of a message outside its envelope. A store saves them as JSON, and a resend repeats them. */
export interface OutgoingTerms {
  readonly to: PeerKey
  readonly priority: Priority
  /** 0 means the broker's default. */
  readonly ttlSeconds: number
  /** Terms for the broker. Without them, the message is sent with the plain `send`. */
  readonly terms?: SendTerms | undefined
  /** Sealed together with the body. */
  readonly note?: Note | undefined
  /** The shared body of a group message. */
  readonly bodyId?: string | undefined
  /** Gets the message instead if the recipient is not a member of the mesh. */
  readonly fallback?: PeerKey | undefined
}

/**
 * A message to be sent. The outbox owns the body until it calls either `accepted` or `refused`, which it does exactly
 * once.
 */
export interface OutgoingMessage extends OutgoingTerms {
  readonly body: Uint8Array
  /** The group message whose body this one shares. */
  readonly message?: GroupMessage
  readonly accepted: (receipt: Receipt) => void
  readonly refused: (error: SealpostError) => void
  /** Called when the message is on disk under this number. Without a store, called immediately with 0. */
  readonly kept?: (outboxNo: number) => void
  /** Called when the message has an id, before the broker receives it. */
  readonly sealed?: ((envelopeId: EnvelopeId) => void) | undefined
}

export interface GroupMessageTerms {
  readonly priority: Priority
  readonly ttlSeconds: number
  readonly terms?: SendTerms | undefined
  /** Sealed with the body, together with the group's id. */
  readonly note?: Note | undefined
}

/** A message to a group. Its body is sealed once, and all its envelopes refer to this object. */
export interface GroupMessage {
  readonly groupId: GroupId
  readonly epoch: number
  readonly bodyId: string
  /** The sealed body. */
  readonly bytes: Uint8Array
  /** The body of each envelope: the content key and the hash of `bytes`. */
  readonly ticket: Uint8Array
  readonly terms: GroupMessageTerms
  /** The history record; undefined if there is none. */
  readonly record?: Uint8Array | undefined
  /** The members to whom it was addressed; empty if an earlier process sent it. */
  readonly members: readonly PeerKey[]
  /** Whether the message was already sealed again for the current members. This happens at most once. */
  readonly isSecond: boolean
  /** Members whose envelopes were refused because the group has changed. The message is sealed again for them. */
  readonly owed: Set<PeerKey>
}

/**
 * A sealed message without a final reply. Waiting messages have no entry, so that a long burst of sends takes little
 * memory.
 */
export interface OutboxEntry {
  /** The message; after the final reply, without body and callbacks. */
  post: OutgoingMessage
  readonly lane: Lane
  /**
   * `keeping`: the store has not confirmed the entry, so it must not be sent. `sealed`: this process has not sent it.
   */
  place: 'keeping' | 'sealed' | 'inFlight' | 'atRest' | 'done'
  /**
   * The id is created once, when the message is admitted. Ids thus ascend in the order of the sends, which saves the
   * broker a lookup. Every resend has the same id and the same bytes.
   */
  readonly envelopeId: EnvelopeId
  readonly envelope: Uint8Array
  /** When the window admitted the message. */
  readonly admittedAtMs: Millis
  /**
   * Whether the network or the broker has lost a reply. If so, a refusal is inconclusive (`finalRefusal`), and a group
   * message is resent even if the group has changed.
   */
  mayBeStored?: boolean
  /** Whether the message was acknowledged by a database that was later restored. The caller already has the reply. */
  isReoffered?: boolean
}

/** Connects the outbox with heads, whose code is in another entry. */
export interface SealHooks {
  /** Called before a message is sealed. Returns the note to seal with it. `stream`: its position, if it has one. */
  noting?: (post: OutgoingMessage, envelopeId: EnvelopeId, stream: StreamPosition | null) => Note | undefined
  /** Called when the broker has acknowledged a message. */
  acked?: (envelopeId: EnvelopeId) => void
}

const PAUSE_BASE_MS = 50
const PAUSE_MAX_MS = 5_000

export class Lane {
  readonly recipient: PeerKey
  readonly priority: Priority
  readonly waiting = new Fifo<OutgoingMessage>()
  /**
   * Sealed entries without a final reply, in order. An entry that has its final reply stays until it reaches the head.
   */
  readonly sealed = new Fifo<OutboxEntry>()
  inFlight = 0
  /** Whether the lane is in the outbox's queue of lanes with messages to admit. */
  isReady = false
  /** After a retryable nack, nothing is sent before this time, nor while anything is in flight. */
  pausedUntilMs: Millis | null = null
  /** Consecutive pauses without an ack. */
  pauses = 0
  #stream: { id: StreamId; seq: number; prev: Uint8Array } | null = null

  constructor(recipient: PeerKey, priority: Priority) {
    this.recipient = recipient
    this.priority = priority
  }

  /** Pauses for a time that increases with each pause, but at least for `retryAfterMs`. */
  pause(nowMs: Millis, retryAfterMs: Millis, random: () => number): void {
    if (this.pausedUntilMs === null) {
      const pauseMs = Math.min(PAUSE_MAX_MS, PAUSE_BASE_MS * 2 ** Math.min(this.pauses, 10))
      this.pausedUntilMs = nowMs + pauseMs * (0.5 + random() / 2)
      this.pauses += 1
    }
    this.pausedUntilMs = Math.max(this.pausedUntilMs, nowMs + retryAfterMs)
  }

  /** Returns the position of the next envelope. `advance` then takes it. */
  nextPosition(newStreamId: () => StreamId): StreamPosition {
    this.#stream ??= { id: newStreamId(), seq: 0, prev: NO_PREV }
    return { streamId: this.#stream.id, seq: this.#stream.seq + 1, prev: this.#stream.prev }
  }

  advance(headerHash: Uint8Array): void {
    this.#stream!.seq += 1
    this.#stream!.prev = headerHash
  }

  /**
   * Starts a new stream after an envelope that the sender knows to have failed; otherwise, the recipient would report a
   * gap.
   */
  restartStream(): void {
    this.#stream = null
  }

  /** Puts entries before all other sealed entries, because they were sent earlier. */
  putBack(entries: readonly OutboxEntry[]): void {
    const later = [...this.sealed]
    this.sealed.clear()
    for (const entry of [...entries, ...later]) this.sealed.push(entry)
  }

  dropDone(): void {
    while (this.sealed.peek()?.place === 'done') this.sealed.shift()
  }
}

/**
 * How long acknowledged messages are kept for a resend. This is documented: an operator who restores an older backup
 * must notify all users.
 */
const KEEP_SENT_MS = 15 * 60_000
const COUNT_MAX = 4096
const BYTES_MAX = 4 * 1024 * 1024
const NO_BODY = new Uint8Array(0)
const nobody = (): void => undefined

/**
 * Returns the message without its body and the sender's callbacks, which would otherwise stay in memory as long as the
 * sealed bytes.
 */
function withoutBody({ to, priority, ttlSeconds, terms, note, bodyId, message }: OutgoingMessage): OutgoingMessage {
  const kept = { to, priority, ttlSeconds, terms, note, bodyId, ...(message && { message }) }
  return { ...kept, body: NO_BODY, accepted: nobody, refused: nobody }
}

/**
 * Remembers recently acknowledged messages. A database that was restored from a backup has lost the newest messages.
 * They are sent again under the same ids, so that a message that the database still has is not stored twice.
 */
export class RecentlyAcked {
  readonly #entries = new Fifo<{ readonly entry: OutboxEntry; readonly ackedAtMs: Millis }>()
  #bytes = 0

  add(entry: OutboxEntry, nowMs: Millis): void {
    if (entry.post.terms?.ifOnline) return // the message was only useful at the time
    entry.post = withoutBody(entry.post)
    this.#entries.push({ entry, ackedAtMs: nowMs })
    this.#bytes += entry.envelope.length
    while (this.#isOver(nowMs)) this.#bytes -= this.#entries.shift()!.entry.envelope.length
  }

  /**
   * Takes all entries for a resend, in the order of the acks, which is the order of the sends within a lane. `refused`
   * is called if the resend is refused.
   */
  takeForResend(refused: (entry: OutboxEntry, error: SealpostError) => void, nowMs: Millis): OutboxEntry[] {
    while (this.#isOver(nowMs)) this.#entries.shift()
    const again = [...this.#entries].map(({ entry: former }): OutboxEntry => {
      const post = { ...former.post, refused: (error: SealpostError) => refused(former, error) }
      return { ...former, post, place: 'atRest', mayBeStored: true, isReoffered: true }
    })
    this.#entries.clear()
    this.#bytes = 0
    return again
  }

  #isOver(nowMs: Millis): boolean {
    const eldest = this.#entries.peek()
    if (!eldest) return false
    return this.#entries.length > COUNT_MAX || this.#bytes > BYTES_MAX || nowMs - eldest.ackedAtMs >= KEEP_SENT_MS
  }
}

/** An item of a `send` frame. The functions below pack envelopes into as few frames as the frame limits allow. */
/** The number of new messages that are sent immediately, even while the broker owes replies. */
const FILLED_AT = 8
const HOLD_MS_MAX = 5

/**
 * Holds new messages briefly while the broker owes replies, so that a peer that sends one message per turn of the event
 * loop also fills its frames. A message is held until eight are held, until the last reply, or for 5 ms. A message with
 * priority `now` ends the hold. `docs/benchmarks/notes/cpu.md` has the measurements.
 */
export class FrameHold {
  /** Infinity if no message was posted since the last release. */
  untilMs: Millis = Infinity

  posted({ priority }: OutgoingMessage, nowMs: Millis): void {
    this.untilMs = Math.min(this.untilMs, priority === 'now' ? nowMs : nowMs + HOLD_MS_MAX)
  }

  isHolding(owedCount: number, waitingCount: number, nowMs: Millis): boolean {
    return owedCount > 0 && waitingCount < FILLED_AT && nowMs < this.untilMs && this.untilMs !== Infinity
  }

  release(): void {
    this.untilMs = Infinity
  }
}

export type SendItem = FrameOf<'send'>['envelopes'][number]
export type SendWithItem = FrameOf<'sendWith'>['envelopes'][number]
/** An envelope of a group message. `isPinned`: the broker stores it only if the group has not changed. */
export interface GroupItem {
  readonly message: GroupMessage
  readonly isPinned: boolean
  readonly send: SendItem
}
export type OutgoingItem = SendItem | SendWithItem | GroupItem
export type SendFrame = FrameOf<'send'> | FrameOf<'sendWith'> | BroadcastFrame
type BroadcastFrame = FrameOf<'broadcast'> | FrameOf<'broadcastKept'>

/** Half of the maximum frame, because the JSON form contains field names and base64 makes envelopes a third longer. */
const SEND_BYTES = FRAME_BYTES_MAX / 2
const SEND_ITEM_BYTES = 128
const SEND_WITH_ITEM_BYTES = 320

export function packSends(items: readonly SendItem[]): FrameOf<'send'>[] {
  return packed(items, ({ envelope }) => envelope.length + SEND_ITEM_BYTES).map((envelopes) => ({
    type: 'send',
    envelopes,
  }))
}

/** Packs envelopes in order. Those with terms or a shared body need frames of other types. */
export function packMixed(items: readonly OutgoingItem[]): SendFrame[] {
  return runs(items).flatMap((run): SendFrame[] => {
    if (isPlain(run[0]!)) return packSends(run as SendItem[])
    if (isOfGroup(run[0]!)) return packBroadcasts(run as GroupItem[])
    const frames = packed(run as SendWithItem[], ({ send }) => send.envelope.length + SEND_WITH_ITEM_BYTES)
    return frames.map((envelopes) => ({ type: 'sendWith', envelopes }))
  })
}

const NO_GROUP = '0'.repeat(32) as GroupId

/**
 * Packs broadcasts. A resend of a message that may be stored contains no group: if it were refused as stale, the
 * message would be sealed again and arrive twice.
 */
function packBroadcasts(items: readonly GroupItem[]): BroadcastFrame[] {
  const [{ message, isPinned }] = items as [GroupItem]
  const { groupId, epoch, bodyId, bytes, record, terms } = message
  const { receipts = 'none', thread = NO_THREAD, hops = 0, noAutoReply = false } = terms.terms ?? {}
  const roster = { group: isPinned ? groupId : NO_GROUP, rosterEpoch: isPinned ? epoch : 0 }
  const fixed = {
    ...(record ? ({ type: 'broadcastKept', record } as const) : ({ type: 'broadcast' } as const)),
    ...roster,
    bodyId,
    body: bytes,
    terms: { receipts, thread, hops, noAutoReply },
  }
  const limits = { bytesMax: SEND_BYTES - bytes.length, itemsMax: FANOUT_MAX }
  return packed(items, ({ send }) => send.envelope.length + SEND_ITEM_BYTES, limits).map((some) => ({
    ...fixed,
    envelopes: some.map(({ send }) => send),
  }))
}

/** Splits items into groups that fit into a frame, in number and bytes. */
export function packed<T>(
  items: readonly T[],
  bytesOf: (item: T) => number,
  { bytesMax, itemsMax } = { bytesMax: SEND_BYTES, itemsMax: BATCH_MAX },
): T[][] {
  const frames: T[][] = []
  let frame: T[] = []
  let byteCount = 0
  for (const item of items) {
    const itemBytes = bytesOf(item)
    if (frame.length > 0 && (frame.length === itemsMax || byteCount + itemBytes > bytesMax)) {
      frames.push(frame)
      frame = []
      byteCount = 0
    }
    frame.push(item)
    byteCount += itemBytes
  }
  if (frame.length > 0) frames.push(frame)
  return frames
}

const isPlain = (item: OutgoingItem): item is SendItem => 'envelope' in item
const isOfGroup = (item: OutgoingItem): item is GroupItem => 'message' in item

function isOfOneKind(a: OutgoingItem, b: OutgoingItem): boolean {
  if (isOfGroup(a) && isOfGroup(b)) return a.message === b.message && a.isPinned === b.isPinned
  return isPlain(a) === isPlain(b) && isOfGroup(a) === isOfGroup(b)
}

/** Groups consecutive items of the same frame type. */
function runs(items: readonly OutgoingItem[]): OutgoingItem[][] {
  const result: OutgoingItem[][] = []
  for (const item of items) {
    const last = result.at(-1)
    if (last && isOfOneKind(last[0]!, item)) last.push(item)
    else result.push([item])
  }
  return result
}

/** Splits a list into chunks of at most `max`. */
export function chunksOf<T>(items: T[], max: number): T[][] {
  if (items.length <= max) return items.length === 0 ? [] : [items]
  return Array.from({ length: Math.ceil(items.length / max) }, (_, i) => items.slice(i * max, (i + 1) * max))
}

/** Options of a message. Some are sent to the broker, and others are sealed with the body. */
export interface SendOptions {
  /** Default: `next`. */
  readonly priority?: Priority
  /**
   * How long the broker stores the message for an absent recipient, in whole seconds. Default: the broker's own value.
   */
  readonly ttlSeconds?: number
  /**
   * The broker holds the message until this time, according to its database clock. A number is in ms since 1970. Its
   * order relative to other messages is undefined, and its loss is not reported as a gap.
   */
  readonly notBefore?: Date | Millis
  /**
   * Which `receipt` events the sender receives. `end`: how the delivery ended; `all`: also that it was pushed. Default:
   * `none`.
   */
  readonly receipts?: ReceiptWish
  /** The conversation of the message, as 32 hex digits. The broker limits the rate of a conversation. */
  readonly thread?: string
  /** The reference to an uploaded file, from `attachmentText`. It is sealed with the body. */
  readonly attachment?: string
  /** How often this conversation has passed from peer to peer; `reply` increments it. Default: 0. */
  readonly hops?: number
  /** Declines replies that no person wrote. */
  readonly noAutoReply?: boolean
  /** Whether the message is refused with `no_responder` if the recipient has no session. */
  readonly ifOnline?: boolean
}

const HOPS_MAX = 0xffff

/** Converts the options of a message. @throws RangeError if an option is invalid */
export function postTermsOf(to: PeerKey, options: SendOptions, note?: Note): OutgoingTerms {
  const { priority = 'next', ttlSeconds = 0, thread, attachment } = options
  check(Number.isSafeInteger(ttlSeconds) && ttlSeconds >= 0, 'ttlSeconds must be a whole number of seconds')
  const isNoted = thread || attachment
  const whole = isNoted ? { ...(thread && { thread }), ...(attachment && { attachment }), ...note } : note
  return { to, priority, ttlSeconds, terms: sendTermsOf(options), note: whole }
}

/**
 * Returns the terms for the broker; undefined without such options, because the message is then sent with the plain
 * `send`.
 */
function sendTermsOf(options: SendOptions): SendTerms | undefined {
  const { receipts = 'none', thread = NO_THREAD, hops = 0, noAutoReply = false, ifOnline = false } = options
  const notBeforeMs = options.notBefore === undefined ? 0 : Number(options.notBefore)
  const isPlain = receipts === 'none' && thread === NO_THREAD && hops === 0 && notBeforeMs === 0
  if (isPlain && !noAutoReply && !ifOnline) return undefined
  check(isHex(thread, 16), 'thread must be 32 lower-case hex digits')
  check(Number.isInteger(hops) && hops >= 0 && hops <= HOPS_MAX, `hops must be a whole number from 0 to ${HOPS_MAX}`)
  check(notBeforeMs >= 0 && notBeforeMs <= Number.MAX_SAFE_INTEGER, 'notBefore must be a time after 1970')
  return { notBeforeMs: Math.ceil(notBeforeMs), receipts, thread, hops, noAutoReply, ifOnline }
}

function check(isGood: boolean, rule: string): void {
  if (!isGood) throw new RangeError(rule)
}
