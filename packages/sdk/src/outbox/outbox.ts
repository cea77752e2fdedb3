/**
 * Manages the messages to send and those without a final reply. Pure and synchronous.
 *
 * The window limits unacknowledged messages; beyond it, messages wait unsealed. The rules between outbox and broker:
 * - A retryable nack blocks its lane at the broker until an item with `isHead` arrives. So the lane pauses here,
 *   waits for the replies to everything in flight, and continues from its oldest unanswered entry, in order.
 * - A new session has no state of the previous one, so everything unanswered is resent in sealing order.
 * - `isHead` marks an item before which nothing of its lane is in flight.
 * With a store, a post is stored as soon as it is made, and sealed bytes are stored before they are first sent. The
 * store replies in the order of the requests, so storing does not change the order of a lane.
 */
import type { Correspondent } from '@sealpost/identity'
import { BODY_BYTES_MAX, type FrameOf, type NackCode, PRIORITIES, refusal } from '@sealpost/protocol'
import { isHex, type Millis, type PeerKey } from '@sealpost/std'
import { asSealError, finalRefusal, maybeSent, refusedBy, SealpostError } from '../errors.ts'
import { type CryptoPort, type EnginePart, NO_FRAMES, type PeerCounters } from '../ports.ts'
import type { StoreRecord } from '../stores/records.ts'
import {
  Fifo,
  FrameHold,
  type GroupMessage,
  Lane,
  type OutboxEntry,
  type OutgoingItem,
  type OutgoingMessage,
  packMixed,
  packSends,
  RecentlyAcked,
  type SealHooks,
  type SendFrame,
  type SendItem,
} from './lane.ts'
import type { OrphanOf, PersistentOutbox } from './persistent-outbox.ts'

export interface OutboxOptions {
  readonly window: number
  readonly windowBytes: number
  /** The maximum number of messages that wait beyond the window; more are refused. */
  readonly waitingMax: number
}

export interface OutboxPorts {
  readonly crypto: Pick<CryptoPort, 'seal' | 'newEnvelopeId' | 'newStreamId'>
  readonly random: () => number
  /** Returns the key of the lane's recipient, or null if `unlock` or `refuse` will follow. */
  readonly keyOf: (lane: Lane, nowMs: Millis) => Correspondent | null
  readonly counters: PeerCounters
  /** Returns whether a newer statement of the group is known that does not list this peer. */
  readonly hasLeft: (message: GroupMessage, peer: PeerKey) => boolean
  /** Null if there is no store. */
  readonly keptPosts: PersistentOutbox | null
  readonly hooks: SealHooks
}

/** The broker's limits, sent with each session. */
export type OutboxLimits = Pick<
  FrameOf<'welcome'>,
  'envelopeBytesMax' | 'ttlSecondsMax' | 'inFlightMax' | 'dedupeSeconds'
>

/** A message is resent for this long, or for half of the time for which the broker remembers an id if that is shorter. */
export const RESEND_FOR_MS_MAX = 12 * 3_600_000
/** The maximum number of consecutive entries from one lane, so that a long lane does not hold up the others. */
const TURN_MAX = 16

export class Outbox implements EnginePart {
  readonly #options: OutboxOptions
  readonly #ports: OutboxPorts
  readonly #lanes = new Map<PeerKey, (Lane | undefined)[]>()
  /** Lanes with waiting messages, served in turns. */
  readonly #ready = new Fifo<Lane>()
  private readonly paused = new Set<Lane>()
  /** Sealed entries without a reply, in the order of sealing. */
  private unanswered = new Map<string, OutboxEntry>()
  /** Entries that must still be sent in this session, as the window allows. */
  readonly #unsent = new Set<OutboxEntry>()
  #unansweredBytes = 0
  readonly #sentLately = new RecentlyAcked()
  #waitingCount = 0
  readonly #hold = new FrameHold()
  /** The number of replies that the broker owes in this session. */
  owedCount = 0
  #outgoing: OutgoingItem[] = []
  /** Whether any entry has terms or a shared body. */
  #isMixed = false
  #justKept: OutboxEntry[] = []
  #limits: OutboxLimits | null = null
  /** Without a session, the value from the last one applies. */
  #resendForMs = RESEND_FOR_MS_MAX
  /** Whether the broker is shutting down. */
  private isLeaving = false

  constructor(ports: OutboxPorts, options: OutboxOptions) {
    this.#ports = ports
    this.#options = options
  }

  /** The number of messages without a final reply. */
  get pendingCount(): number {
    return this.unanswered.size + this.#waitingCount
  }

  /** Whether a message waits for the broker's reply to another message. */
  get isHeldUp(): boolean {
    return this.#waitingCount > 0 || this.paused.size > 0 || this.#unsent.size > 0
  }

  post(post: OutgoingMessage, nowMs: Millis): void {
    const lane = this.#laneOf(post)
    if (!lane) return post.refused(refusedBy('unknown_recipient'))
    if (post.body.length > BODY_BYTES_MAX)
      return post.refused(new SealpostError('body_too_large', `A body can have at most ${BODY_BYTES_MAX} bytes.`))
    if (this.#waitingCount >= this.#options.waitingMax)
      return post.refused(
        new SealpostError('outbox_full', 'Too many messages are waiting to be sent.', { isRetryable: true }),
      )
    this.#hold.posted(post, nowMs)
    const { keptPosts } = this.#ports
    this.#enqueue(lane, keptPosts ? keptPosts.posted(post) : post)
    if (!keptPosts) post.kept?.(0)
  }

  /** Resumes what an earlier process left unanswered. Call before the first session and the first post. */
  restore(records: readonly StoreRecord[], orphanOf: OrphanOf): void {
    for (const [record, post] of this.#ports.keptPosts?.restore(records, orphanOf) ?? []) {
      const lane = this.#laneOf(post)!
      if (record.kind === 'waiting') this.#enqueue(lane, post)
      else {
        const { envelopeId, admittedAtMs, bytes: envelope } = record
        this.#awaitAnswer({ post, lane, place: 'atRest', envelopeId, envelope, admittedAtMs, mayBeStored: true })
      }
    }
  }

  /** Call when a session has begun. Everything unanswered is resent. */
  connected(limits: OutboxLimits, nowMs: Millis): void {
    this.expire(nowMs) // uses the limit from the last session
    this.#limits = limits
    this.#resendForMs = Math.min(RESEND_FOR_MS_MAX, (limits.dedupeSeconds * 1000) / 2)
    this.isLeaving = false
    this.#justKept = []
    for (const entry of this.unanswered.values()) if (entry.place !== 'keeping') this.#unsent.add(entry)
    this.#launchUnsent(nowMs)
  }

  /**
   * Call before `connected` if the broker's database has a new incarnation: recently acknowledged messages become
   * unanswered again. Returns their number. `refused` is called if a resend is refused.
   */
  reoffer(refused: (entry: OutboxEntry, error: SealpostError) => void, nowMs: Millis): number {
    const again = this.#sentLately.takeForResend(refused, nowMs)
    this.unanswered = new Map([...again.map((entry) => [entry.envelopeId, entry] as const), ...this.unanswered])
    for (const lane of new Set(again.map((entry) => entry.lane)))
      lane.putBack(again.filter((entry) => entry.lane === lane))
    for (const { envelope } of again) this.#unansweredBytes += envelope.length
    return again.length
  }

  /** Call when the session has ended. Unanswered entries rest until the next session. */
  disconnected(): void {
    this.#limits = null
    this.#outgoing = []
    this.#unsent.clear()
    this.owedCount = 0
    for (const entry of this.unanswered.values()) {
      if (entry.place === 'inFlight') {
        entry.place = 'atRest'
        entry.mayBeStored = true
      }
      entry.lane.inFlight = 0
    }
    for (const lane of this.paused) {
      lane.pausedUntilMs = null
      this.#makeReady(lane)
    }
    this.paused.clear()
  }

  /** Call when the broker is shutting down. Replies still arrive, but nothing new is sent in this session. */
  leaving(): void {
    this.isLeaving = true
  }

  acked(items: FrameOf<'ack'>['items'], nowMs: Millis): void {
    for (const { envelopeId, isDuplicate } of items) {
      const entry = this.unanswered.get(envelopeId)
      if (!entry) continue
      this.#finish(entry)
      entry.lane.pauses = 0
      this.#ports.counters.acked += 1
      this.#ports.hooks.acked?.(envelopeId)
      entry.post.accepted({ envelopeId, isDuplicate, admittedAtMs: entry.admittedAtMs, ackedAtMs: nowMs })
      this.#sentLately.add(entry, nowMs)
    }
  }

  nacked(items: FrameOf<'nack'>['items'], nowMs: Millis): void {
    for (const { envelopeId, code, retryAfterMs } of items) {
      const entry = this.unanswered.get(envelopeId)
      if (entry?.place !== 'inFlight') continue
      this.#ports.counters.nacked += 1
      if (code === 'unavailable') entry.mayBeStored = true
      if (refusal(code).isRetryable) this.#pause(entry, nowMs, retryAfterMs)
      else this.#fail(entry, finalRefusal(code as NackCode, entry))
    }
  }

  unlock(recipient: PeerKey): void {
    for (const lane of this.#lanes.get(recipient) ?? []) if (lane) this.#makeReady(lane)
  }

  /** Refuses the waiting messages of a recipient that has no key to seal to. */
  refuse(recipient: PeerKey, error: SealpostError): void {
    for (const lane of this.#lanes.get(recipient) ?? []) if (lane) this.#refuseWaiting(lane, error)
  }

  /** Posts a recipient's waiting messages again, because the recipient has a new identity key. */
  follow(former: PeerKey, post: (waiting: OutgoingMessage) => void): void {
    for (const lane of this.#lanes.get(former) ?? [])
      for (let waiting = lane?.waiting.shift(); waiting; waiting = lane?.waiting.shift()) {
        this.#waitingCount -= 1
        this.#ports.keptPosts?.done(waiting)
        post(waiting)
      }
  }

  takeFrames(nowMs: Millis): readonly SendFrame[] {
    if (!this.#limits) return NO_FRAMES
    if (!this.isLeaving) {
      this.#resumeLanes(nowMs)
      this.#launchKept()
      this.#launchUnsent(nowMs)
      if (!this.#hold.isHolding(this.owedCount, this.#waitingCount, nowMs)) this.#admit(nowMs)
    }
    if (this.#outgoing.length === 0) return NO_FRAMES
    const items = this.#outgoing
    this.#outgoing = []
    if (!this.#isMixed) return packSends(items as SendItem[])
    this.#isMixed = false
    return packMixed(items)
  }

  /** Gives up entries that are too old to resend, the oldest of each lane first, so that no later one overtakes it. */
  expire(nowMs: Millis): void {
    if (this.#limits) return
    for (const entry of this.unanswered.values()) {
      if (!this.#isTooOld(entry, nowMs)) return
      this.#giveUp(entry)
    }
  }

  /** Returns when `takeFrames` or `expire` must be called again without an external event. */
  get wakeAtMs(): Millis {
    if (!this.#limits) return (this.unanswered.values().next().value?.admittedAtMs ?? Infinity) + this.#resendForMs
    if (this.isLeaving) return Infinity
    let atMs = this.#hold.untilMs
    for (const lane of this.paused) if (lane.inFlight === 0) atMs = Math.min(atMs, lane.pausedUntilMs!)
    return atMs
  }

  /** Refuses everything. Sent messages may be stored. A store keeps all messages for the next process. */
  close(error: SealpostError): void {
    this.disconnected()
    if (this.#ports.keptPosts) return this.#leave(this.#ports.keptPosts, error)
    for (const entry of [...this.unanswered.values()]) this.#giveUp(entry)
    for (const lanes of this.#lanes.values()) for (const lane of lanes) if (lane) this.#refuseWaiting(lane, error)
  }

  #leave(keptPosts: PersistentOutbox, error: SealpostError): void {
    const left = [...this.unanswered.values()].map(({ post }) => post)
    for (const entry of this.unanswered.values()) entry.place = 'done'
    this.unanswered.clear()
    for (const lanes of this.#lanes.values())
      for (const lane of lanes)
        if (lane) {
          left.push(...lane.waiting)
          lane.waiting.clear()
        }
    this.#waitingCount = 0
    for (const post of left) post.refused(keptPosts.endOf(post, error))
  }

  #enqueue(lane: Lane, post: OutgoingMessage): void {
    lane.waiting.push(post)
    this.#waitingCount += 1
    this.#makeReady(lane)
  }

  #awaitAnswer(entry: OutboxEntry): void {
    entry.lane.sealed.push(entry)
    this.unanswered.set(entry.envelopeId, entry)
    this.#unansweredBytes += entry.envelope.length
  }

  #laneOf({ to, priority }: OutgoingMessage): Lane | null {
    let lanes = this.#lanes.get(to)
    if (!lanes) {
      if (!isHex(to, 32)) return null
      lanes = []
      this.#lanes.set(to, lanes)
    }
    const place = PRIORITIES.indexOf(priority)
    const lane = lanes[place] ?? new Lane(to, priority)
    lanes[place] = lane
    return lane
  }

  #makeReady(lane: Lane): void {
    if (lane.isReady || lane.pausedUntilMs !== null || lane.waiting.length === 0) return
    lane.isReady = true
    this.#ready.push(lane)
  }

  #hasRoom(): boolean {
    return this.unanswered.size < this.#window && this.#unansweredBytes < this.#options.windowBytes
  }

  get #window(): number {
    return this.#limits ? Math.min(this.#options.window, this.#limits.inFlightMax) : 0
  }

  #admit(nowMs: Millis): void {
    this.#hold.release()
    while (this.#hasRoom()) {
      const lane = this.#ready.shift()
      if (!lane) return
      lane.isReady = false
      if (lane.pausedUntilMs !== null) continue
      const to = this.#ports.keyOf(lane, nowMs)
      if (!to) continue
      for (let i = 0; i < TURN_MAX && lane.waiting.length > 0 && this.#hasRoom(); i++) this.#admitNext(lane, to, nowMs)
      this.#makeReady(lane)
    }
  }

  #admitNext(lane: Lane, to: Correspondent, nowMs: Millis): void {
    const { message } = lane.waiting.peek()!
    this.#admitOne(lane, to, nowMs)
    if (message) this.#admitSiblings(message, nowMs)
  }

  /** Admits a complete group message, even beyond the window: in pieces, each frame would contain the body again. */
  #admitSiblings(message: GroupMessage, nowMs: Millis): void {
    for (const peer of message.members) {
      const lane = this.#lanes.get(peer)?.[PRIORITIES.indexOf(message.terms.priority)]
      if (lane?.waiting.peek()?.message !== message || lane.pausedUntilMs !== null) continue
      const to = this.#ports.keyOf(lane, nowMs)
      if (to) this.#admitOne(lane, to, nowMs)
    }
  }

  #admitOne(lane: Lane, to: Correspondent, nowMs: Millis): void {
    const post = lane.waiting.shift()!
    this.#waitingCount -= 1
    const entry = this.#seal(post, lane, to, nowMs)
    if (entry instanceof SealpostError) return this.#refusePost(post, entry)
    this.#awaitAnswer(entry)
    post.sealed?.(entry.envelopeId)
    const { keptPosts } = this.#ports
    if (!keptPosts) return this.#launch(entry, nowMs)
    entry.place = 'keeping'
    keptPosts.sealed(entry, () => this.#kept(entry))
  }

  #kept(entry: OutboxEntry): void {
    if (entry.place !== 'keeping') return
    entry.place = 'sealed'
    this.#justKept.push(entry)
  }

  #launchKept(): void {
    if (this.#justKept.length === 0) return
    for (const entry of this.#justKept) if (entry.place === 'sealed') this.#unsent.add(entry)
    this.#justKept = []
  }

  /** Entries of a paused lane remain queued and are sent when it continues. */
  #launchUnsent(nowMs: Millis): void {
    for (const entry of this.#unsent) {
      if (this.unanswered.size - this.#unsent.size >= this.#window) return
      this.#unsent.delete(entry)
      if (entry.lane.pausedUntilMs === null) this.#launch(entry, nowMs)
    }
  }

  /** Seals a post. If it is refused here, it takes no position in the stream. */
  #seal(post: OutgoingMessage, lane: Lane, to: Correspondent, nowMs: Millis): OutboxEntry | SealpostError {
    const { crypto, hooks } = this.#ports
    if (post.ttlSeconds > this.#limits!.ttlSecondsMax) return refusedBy('ttl_too_long')
    // A delayed message arrives out of order, and a stream would report it as missing.
    const stream = post.terms && post.terms.notBeforeMs > 0 ? null : lane.nextPosition(crypto.newStreamId)
    const envelopeId = crypto.newEnvelopeId()
    try {
      const note = hooks.noting?.(post, envelopeId, stream) ?? post.note ?? null
      const draft = { to, envelopeId, stream, sentAtMs: Math.floor(nowMs), note, body: post.body }
      const { envelope, headerHash } = crypto.seal(draft, lane.priority)
      if (envelope.length > this.#limits!.envelopeBytesMax) return refusedBy('envelope_too_large')
      if (stream) lane.advance(headerHash)
      return { post, lane, place: 'sealed', envelopeId, envelope, admittedAtMs: nowMs }
    } catch (cause) {
      return asSealError(cause)
    }
  }

  #launch(entry: OutboxEntry, nowMs: Millis): void {
    if (this.#isTooOld(entry, nowMs) || this.#isForOneWhoLeft(entry)) return this.#giveUp(entry)
    const { lane, post } = entry
    const { counters } = this.#ports
    counters[entry.place === 'sealed' ? 'sent' : 'resent'] += 1
    const item: SendItem = {
      envelopeId: entry.envelopeId,
      recipient: lane.recipient,
      priority: lane.priority,
      isHead: lane.inFlight === 0,
      ttlSeconds: post.ttlSeconds,
      envelope: entry.envelope,
    }
    const { message, terms } = post
    if (message || terms) this.#isMixed = true
    if (message) this.#outgoing.push({ message, isPinned: !entry.mayBeStored, send: item })
    else this.#outgoing.push(terms ? { send: item, terms } : item)
    entry.place = 'inFlight'
    lane.inFlight += 1
    this.owedCount += 1
  }

  #pause(entry: OutboxEntry, nowMs: Millis, retryAfterMs: Millis): void {
    const { lane } = entry
    entry.place = 'atRest'
    lane.inFlight -= 1
    this.owedCount -= 1
    lane.pause(nowMs, retryAfterMs, this.#ports.random)
    this.paused.add(lane)
  }

  #resumeLanes(nowMs: Millis): void {
    for (const lane of this.paused) {
      if (lane.inFlight > 0 || nowMs < lane.pausedUntilMs!) continue
      lane.pausedUntilMs = null
      this.paused.delete(lane)
      for (const entry of [...lane.sealed])
        if ((entry.place === 'atRest' || entry.place === 'sealed') && !this.#unsent.has(entry))
          this.#launch(entry, nowMs)
      this.#makeReady(lane)
    }
  }

  /** Whether the recipient has left the group since the message was sent. It is then not resent. */
  #isForOneWhoLeft({ mayBeStored, post: { message, to } }: OutboxEntry): boolean {
    return message !== undefined && mayBeStored === true && this.#ports.hasLeft(message, to)
  }

  #isTooOld(entry: OutboxEntry, nowMs: Millis): boolean {
    return nowMs - entry.admittedAtMs >= this.#resendForMs
  }

  #giveUp(entry: OutboxEntry): void {
    this.#fail(entry, maybeSent())
  }

  #fail(entry: OutboxEntry, error: SealpostError): void {
    this.#finish(entry)
    entry.lane.restartStream()
    this.#refused(entry.post, error)
  }

  #refusePost(post: OutgoingMessage, error: SealpostError): void {
    this.#ports.keptPosts?.done(post)
    this.#refused(post, error)
  }

  #refused({ fallback: to, ...post }: OutgoingMessage, error: SealpostError): void {
    if (to && error.code === 'unknown_recipient') this.post({ ...post, to }, Infinity)
    else post.refused(error)
  }

  #finish(entry: OutboxEntry): void {
    const { lane } = entry
    this.unanswered.delete(entry.envelopeId)
    this.#unsent.delete(entry)
    this.#unansweredBytes -= entry.envelope.length
    if (entry.place === 'inFlight') {
      lane.inFlight -= 1
      this.owedCount -= 1
    }
    entry.place = 'done'
    lane.dropDone()
    if (!entry.isReoffered) this.#ports.keptPosts?.done(entry.post)
  }

  #refuseWaiting(lane: Lane, error: SealpostError): void {
    for (let post = lane.waiting.shift(); post; post = lane.waiting.shift()) {
      this.#waitingCount -= 1
      this.#refusePost(post, error)
    }
  }
}
