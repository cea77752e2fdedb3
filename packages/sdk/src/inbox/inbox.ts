/**
 * Tracks received messages, so that the application sees each message once (P8) although the broker may push it again.
 * It tracks the messages that the application currently has, by id, and the numbers seen, by stream.
 *
 * With a store, the settled numbers outlive the process. The store tracks settled messages instead of seen ones: a
 * message that the application had when the process died was seen but not settled, so the next process hands it out
 * again.
 */
import type { StreamId, StreamPosition } from '@sealpost/identity'
import { BATCH_MAX, type FrameOf, type ReceiptEvent } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, Millis, PeerKey } from '@sealpost/std'
import { chunksOf } from '../outbox/lane.ts'
import type { InboxRecord, StoreRecord } from '../stores/records.ts'
import type { StoreWriter } from '../stores/store.ts'
import type { Message } from './message.ts'
import { type ArrivedMessage, addBounded, HashChain, SequenceTracker } from './stream-order.ts'

/**
 * What to do with a message. `fresh`: hand it out. `redriven`: hand it out; the application rejected an earlier
 * delivery of it. `duplicate`: settle it again; it was settled before. `{ running }`: the application has it at the
 * moment; settle it when the application does. `{ rejected }`: reject it again for the same reason; it was rejected
 * before. `{ gap }`: hand it out; this many messages are missing before it. `taken`: drop it; another message has its
 * position. `forked`: hand it out; it does not follow the message that was received before it.
 */
export type InboxVerdict<Held> = 'fresh' | 'redriven' | 'taken' | 'forked' | { readonly gap: number } | Repeated<Held>

export type Repeated<Held> = 'duplicate' | { readonly running: Held } | { readonly rejected: string }

export interface InboxPersistence {
  readonly writer: StoreWriter
  readonly records: readonly StoreRecord[]
}

/**
 * The minimum number of streams that are remembered per sender, and of messages without a stream and of rejected
 * messages. The least recently used are dropped. When a broker dies, it pushes all messages with uncommitted settles
 * again, and each may be in a different stream. A stream costs about 500 bytes, so a sender with a new stream for every
 * message costs 4 MiB.
 */
const REMEMBERED_MIN = 8_192
/** The number of remembered items per unit of credit. Settled but uncommitted messages may exceed the credit. */
const REMEMBERED_PER_CREDIT = 4
const CREDIT_USUAL = 512

interface Stream {
  /** The position in the store's order of last use. */
  rank: number
  readonly seen: SequenceTracker
  /** Null without a store. */
  readonly settled: SequenceTracker | null
  readonly chain: HashChain
}

interface Sender<Held> {
  /** The streams, most recently used last. */
  readonly streams: Map<StreamId, Stream>
  lastUsed: Stream | null
  readonly running: Map<EnvelopeId, Held>
  /** Ids of messages without a stream. */
  readonly loose: Set<EnvelopeId>
  /** Rejected messages, which also count as settled. */
  readonly rejected: Map<EnvelopeId, Rejection>
}

interface Rejection {
  readonly deliveryId: DeliveryId
  readonly reason: string
}

export class Inbox<Held extends ArrivedMessage> {
  readonly #senders = new Map<PeerKey, Sender<Held>>()
  readonly #writer: StoreWriter | null
  readonly #rememberedMax: number
  #lastRank = 0

  /** `credit`: the maximum number of unsettled deliveries. */
  constructor(keeping?: InboxPersistence, credit = CREDIT_USUAL) {
    this.#rememberedMax = Math.max(REMEMBERED_MIN, credit * REMEMBERED_PER_CREDIT)
    this.#writer = keeping?.writer ?? null
    if (keeping) this.#restore(keeping.records)
  }

  /** Returns how many messages are missing between the highest one received in its stream and this one. */
  missingBefore({ sender, stream }: ArrivedMessage): number {
    const known = stream && this.#senders.get(sender)?.streams.get(stream.streamId)
    return known ? known.seen.missingBefore(stream.seq) : 0
  }

  /** Returns how many messages are missing after the highest one received in this stream, up to this one. */
  missingUpTo(sender: PeerKey, streamId: StreamId, seq: number): number {
    const known = this.#senders.get(sender)?.streams.get(streamId)
    return known ? known.seen.missingBefore(seq + 1) : seq
  }

  receive(held: Held): InboxVerdict<Held> {
    const { sender: key, envelopeId, stream } = held
    const sender = this.#senderOf(key)
    const running = sender.running.get(envelopeId)
    if (running) return { running }
    const verdict = stream ? this.#noteInStream(sender, held, stream) : this.#noteLoose(sender, held)
    if (verdict === 'duplicate') return this.#receiveRepeated(sender, held)
    if (verdict !== 'taken') sender.running.set(envelopeId, held)
    return verdict === 'fresh' ? freshOf(sender.rejected, envelopeId) : verdict
  }

  /** Marks the message as settled, so that it is never handed out again. */
  settled(held: Held): void {
    const { sender: key, envelopeId } = held
    const { rejected } = this.#senderOf(key)
    if (rejected.size > 0 && rejected.delete(envelopeId)) this.#writer?.remove(rejectedKey(key, envelopeId))
    this.#ended(held)
  }

  /** Marks this delivery as rejected. The message is handed out again only after a redrive. */
  rejected(held: Held, reason: string): void {
    const { sender: key, envelopeId, deliveryId } = held
    const { rejected } = this.#senderOf(key)
    rejected.delete(envelopeId)
    rejected.set(envelopeId, { deliveryId, reason })
    const rank = ++this.#lastRank
    this.#writer?.put(rejectedKey(key, envelopeId), () => ({
      ...{ kind: 'rejected', sender: key, envelopeId, deliveryId, reason, rank },
    }))
    if (rejected.size > this.#rememberedMax) this.#forgetRejection(key, rejected)
    this.#ended(held)
  }

  #ended({ sender: key, envelopeId, stream }: Held): void {
    this.#senderOf(key).running.delete(envelopeId)
    if (!this.#writer) return
    if (stream) this.#keepMark(this.#writer, key, stream)
    else {
      const rank = ++this.#lastRank
      this.#writer.put(looseKey(key, envelopeId), () => ({ kind: 'loose', sender: key, envelopeId, rank }))
    }
  }

  /** Marks the message as returned to the queue. */
  reopened({ sender: key, envelopeId, stream }: Held): void {
    const sender = this.#senderOf(key)
    sender.running.delete(envelopeId)
    if (stream) this.#streamOf(key, sender, stream.streamId).seen.reopen(stream.seq)
    else sender.loose.delete(envelopeId)
  }

  #restore(records: readonly StoreRecord[]): void {
    for (const record of records.filter(isInboxRecord).sort((a, b) => a.rank - b.rank)) {
      const { streams, loose, rejected } = this.#senderOf(record.sender)
      this.#lastRank = record.rank
      if (record.kind === 'loose') loose.add(record.envelopeId)
      else if (record.kind === 'rejected') rejected.set(record.envelopeId, record)
      else streams.set(record.streamId, newStream(record.rank, new SequenceTracker(record.settled)))
    }
  }

  #senderOf(key: PeerKey): Sender<Held> {
    const known = this.#senders.get(key)
    if (known) return known
    const sender: Sender<Held> = {
      ...{ streams: new Map(), lastUsed: null, running: new Map(), loose: new Set(), rejected: new Map() },
    }
    this.#senders.set(key, sender)
    return sender
  }

  #streamOf(key: PeerKey, sender: Sender<Held>, streamId: StreamId): Stream {
    const { streams } = sender
    const known = streams.get(streamId)
    if (known && known === sender.lastUsed) return known
    const stream = known ?? newStream(++this.#lastRank, this.#writer ? new SequenceTracker() : null)
    if (known) streams.delete(streamId)
    streams.set(streamId, stream)
    sender.lastUsed = stream
    if (streams.size > this.#rememberedMax) this.#forgetOldest(key, streams)
    return stream
  }

  #forgetOldest(key: PeerKey, streams: Map<StreamId, Stream>): void {
    const oldest = streams.keys().next().value!
    streams.delete(oldest)
    this.#writer?.remove(markKey(key, oldest))
  }

  #forgetRejection(key: PeerKey, rejected: Sender<Held>['rejected']): void {
    const oldest = rejected.keys().next().value!
    rejected.delete(oldest)
    this.#writer?.remove(rejectedKey(key, oldest))
  }

  /**
   * Decides about a repeated message. A redriven message is a different delivery than the rejected one, and its first
   * push shows earlier attempts. If a rejection was lost, the same delivery is pushed again. After a database restore,
   * the message may also be a different delivery that the sender has resent, in its first attempt.
   */
  #receiveRepeated(sender: Sender<Held>, held: Held): InboxVerdict<Held> {
    const rejection = sender.rejected.get(held.envelopeId)
    if (!rejection) return 'duplicate'
    const { deliveryId, reason } = rejection
    if (held.deliveryId === deliveryId) return { rejected: reason }
    if (held.attempt > 1) {
      sender.running.set(held.envelopeId, held)
      return freshOf(sender.rejected, held.envelopeId)
    }
    this.rejected(held, reason)
    return { rejected: reason }
  }

  /**
   * Stores the settled numbers. The record is built only when its batch is written, and contains all numbers settled
   * until then.
   */
  #keepMark(writer: StoreWriter, sender: PeerKey, { streamId, seq }: StreamPosition): void {
    const stream = this.#streamOf(sender, this.#senderOf(sender), streamId)
    const { settled } = stream
    settled!.note(seq)
    stream.rank = ++this.#lastRank
    writer.put(markKey(sender, streamId), () => ({
      kind: 'mark',
      sender,
      streamId,
      rank: stream.rank,
      settled: settled!.toRanges(),
    }))
  }

  #noteInStream(sender: Sender<Held>, { sender: key, headerHash }: Held, place: StreamPosition): InboxVerdict<Held> {
    const { chain, seen } = this.#streamOf(key, sender, place.streamId)
    const link = chain.note(place, headerHash!)
    if (link === 'taken') return link
    const missing = seen.note(place.seq)
    if (missing < 0) return 'duplicate'
    if (missing > 0) return { gap: missing }
    return link === 'forked' ? link : 'fresh'
  }

  #noteLoose({ loose }: Sender<Held>, { sender: key, envelopeId }: Held): 'fresh' | 'duplicate' {
    const isKnown = loose.delete(envelopeId) // moves it to the end, as the most recently used
    const oldest = addBounded(loose, envelopeId, this.#rememberedMax)
    if (oldest !== undefined) this.#writer?.remove(looseKey(key, oldest))
    return isKnown ? 'duplicate' : 'fresh'
  }
}

/** The reason given when the receiver, not the application, rejects a message. */
export const TOO_OLD = 'too_old'

/**
 * Returns the verdict on a message that was not seen before or was rejected. A message that the application rejected
 * was never settled. `TOO_OLD` does not prove that: an earlier process without a store may have settled the message,
 * and a broker could replay it with two pushes.
 */
function freshOf(rejected: ReadonlyMap<EnvelopeId, Rejection>, envelopeId: EnvelopeId): 'fresh' | 'redriven' {
  const reason = rejected.size > 0 ? rejected.get(envelopeId)?.reason : undefined
  return reason === undefined || reason === TOO_OLD ? 'fresh' : 'redriven'
}

function newStream(rank: number, settled: SequenceTracker | null): Stream {
  return { rank, seen: new SequenceTracker(settled?.toRanges()), settled, chain: new HashChain() }
}

const markKey = (sender: PeerKey, streamId: StreamId) => `mark ${sender} ${streamId}`
const rejectedKey = (sender: PeerKey, envelopeId: EnvelopeId) => `rejected ${sender} ${envelopeId}`
const looseKey = (sender: PeerKey, envelopeId: EnvelopeId) => `loose ${sender} ${envelopeId}`

const isInboxRecord = (record: StoreRecord): record is InboxRecord =>
  record.kind === 'mark' || record.kind === 'loose' || record.kind === 'rejected'

/** The maximum extension that the broker accepts. */
const EXTEND_MS_MAX = 240_000
/** The minimum lease. A broker that sends 0 would otherwise cause an endless stream of extensions. */
const LEASE_MS_MIN = 20

/**
 * Extends the leases of messages: on request, and after half of the lease while the application works on them, so that
 * a handler may take minutes without a failed attempt.
 */
export class Leases {
  /** The tracked messages, each with the time of its next extension. */
  readonly #held = new Map<Message, Millis>()
  readonly #requested = new Map<Millis, DeliveryId[]>()
  #leaseMs: Millis = EXTEND_MS_MAX
  #isConnected = false
  /** A lower bound for the time of the next extension. */
  #dueAtMs: Millis = Infinity

  connected(leaseMs: Millis): void {
    this.#isConnected = true
    this.#leaseMs = Math.max(LEASE_MS_MIN, Math.min(leaseMs, EXTEND_MS_MAX))
  }

  disconnected(): void {
    this.#isConnected = false
    this.#requested.clear()
  }

  get wakeAtMs(): Millis {
    return this.#isConnected ? this.#dueAtMs : Infinity
  }

  /** Whether the application has requested extensions. */
  get isRequested(): boolean {
    return this.#requested.size > 0
  }

  /** Extends the lease repeatedly while the message is open. Returns whether an extension is due before `wakeAtMs`. */
  hold(message: Message): boolean {
    const dueAtMs = message.receivedAtMs + this.#leaseMs / 2
    this.#held.set(message, dueAtMs)
    if (dueAtMs >= this.#dueAtMs) return false
    this.#dueAtMs = dueAtMs
    return true
  }

  release(message: Message): void {
    if (this.#held.size > 0) this.#held.delete(message)
  }

  /** Extends the lease to `forMs` from now; null means a full lease. */
  extend(message: Message, forMs: Millis | null): void {
    this.#request(message, Math.ceil(Math.min(Math.max(forMs ?? this.#leaseMs, 1), EXTEND_MS_MAX)) || 1)
  }

  #request({ deliveryId }: Message, forMs: Millis): void {
    const ids = this.#requested.get(forMs)
    if (ids) ids.push(deliveryId)
    else this.#requested.set(forMs, [deliveryId])
  }

  /**
   * Returns the extensions that are due. A message from an earlier session has no lease in this one. At the end of the
   * session, when `nowMs` is Infinity, an extension by 0 reports that the message is unread.
   */
  takeFrames(nowMs: Millis, sessionNo: number): FrameOf<'extend'>[] {
    if (nowMs >= this.wakeAtMs) this.#extendDue(nowMs, sessionNo)
    if (this.#requested.size === 0) return []
    const frames = [...this.#requested].flatMap(([forMs, asked]) =>
      chunksOf(asked, BATCH_MAX).map((ids) => ({ type: 'extend' as const, ids, forMs })),
    )
    this.#requested.clear()
    return frames
  }

  #extendDue(nowMs: Millis, sessionNo: number): void {
    this.#dueAtMs = Infinity
    for (const [message, dueAtMs] of this.#held) {
      const isDue = nowMs >= dueAtMs
      if (isDue && message.sessionNo === sessionNo)
        this.#request(message, nowMs === Infinity && message.isUnread ? 0 : this.#leaseMs)
      const nextAtMs = isDue ? nowMs + this.#leaseMs / 2 : dueAtMs
      this.#held.set(message, nextAtMs)
      this.#dueAtMs = Math.min(this.#dueAtMs, nextAtMs)
    }
  }
}

/** A receipt, as the broker reports it. No peer signs it. */
export interface DeliveryReceipt {
  readonly envelopeId: EnvelopeId
  readonly recipient: PeerKey
  /** `expired`, `struck_out` and `rejected` ended as dead letters. */
  readonly event: ReceiptEvent
  /** When it happened, according to the database clock. */
  readonly atMs: Millis
}

const REPORTED_MAX = 4_096

/** Passes each receipt for the messages of this peer to the application once. */
export class Receipts {
  readonly #reported = new Set<string>()

  /** Returns the receipts that this process has not reported yet. */
  take(items: FrameOf<'receipts'>['items']): DeliveryReceipt[] {
    return items.filter(({ envelopeId, event }) => this.#isNews(`${envelopeId} ${event}`)).map(receiptOf)
  }

  #isNews(name: string): boolean {
    if (this.#reported.has(name)) return false
    addBounded(this.#reported, name, REPORTED_MAX)
    return true
  }
}

function receiptOf({ envelopeId, recipient, event, atMs }: FrameOf<'receipts'>['items'][number]): DeliveryReceipt {
  return { envelopeId, recipient, event, atMs }
}
