/**
 * Opens and checks pushed deliveries, drops duplicates, hands messages to the application and settles them. If the
 * sender's key is unknown, a push waits for it, together with all later pushes from that sender. A push that can't be
 * opened yet is deferred, together with later ones in its lane.
 *
 * With a store, a message is settled at the broker only once its mark is stored. Most settles wait briefly for others.
 */
import type { Note } from '@sealpost/identity'
import { ALONE_AFTER_ATTEMPTS, BATCH_MAX, type FrameOf, NO_THREAD, REASON_MAX } from '@sealpost/protocol'
import type { DeliveryId, Millis, PeerKey } from '@sealpost/std'
import type { GroupOpener } from '../groups/group-client.ts'
import { RECHECK_MS } from '../keys/key-directory.ts'
import type { EnvelopeOpener } from '../keys/peer-keys.ts'
import { chunksOf, type OutgoingMessage } from '../outbox/lane.ts'
import { type EnginePart, NO_FRAMES, type PeerCounters, type PeerEffects } from '../ports.ts'
import type { SentHooks, StreamMemory } from '../sent/hooks.ts'
import type { StoreWriter } from '../stores/store.ts'
import type { UserStatements } from '../users/user-statements.ts'
import { Deferrals } from './dispatcher.ts'
import { Inbox, type InboxPersistence, Leases, Receipts, type Repeated, TOO_OLD } from './inbox.ts'
import {
  Message,
  type MessageActions,
  type OpenedEnvelope,
  type OpenedMessage,
  type PushedDelivery,
} from './message.ts'
import { ReorderBuffer } from './stream-order.ts'

export interface ReceiverPorts {
  readonly opening: EnvelopeOpener
  readonly groups: GroupOpener
  readonly users: Pick<UserStatements, 'senderUser'>
  readonly effects: Pick<PeerEffects, 'deliver' | 'emit' | 'flushSoon'>
  readonly counters: PeerCounters
  /** Returns whether a message with a note is a confirmation or answers a request, which then consumes it. */
  readonly isAnswer: (message: Message, inbox: StreamMemory) => boolean
  readonly hooks: SentHooks
  /**
   * Returns whether this peer works for any pool, whose other members may be able to open a message that this peer
   * can't.
   */
  readonly worksForPools: () => boolean
  /** The maximum age of a message; older ones are rejected. Default: 31 days without a store, Infinity with one. */
  readonly maxAgeMs?: Millis | undefined
  readonly post: (post: OutgoingMessage) => void
  /** The maximum number of unsettled deliveries. */
  readonly credit: number
}

type ReceiverFrame = FrameOf<'settle'> | FrameOf<'retry'> | FrameOf<'reject'> | FrameOf<'extend'>

/** How long a settle waits for others, because a separate frame costs a write and a read. */
const SETTLE_WITHIN_MS = 100
/** The number of waiting settles that are sent immediately, because they fill the window. */
const SETTLES_MAX = 64
/** The size from which a message is settled without waiting, because it uses much of the broker's byte window. */
const ALONE_BYTES = 4_096
/** The time after which mail from a peer without a key is retried: the broker may find the key later. */
const KEYLESS_RETRY_MS = 60_000
const RETRY_MAX_MS = 0xffffffff
/**
 * The number of attempts after which a pool message that can't be opened is rejected. Until then, other members may
 * open their own box.
 */
const POOL_ATTEMPTS_MAX = 5
const POOL_RETRY_MS = 1_000

/** A broker's maximum time to live is 30 days by default; one more day allows for differing clocks. */
const MAX_AGE_MS = 31 * 24 * 3600_000

export class Receiver implements EnginePart, MessageActions {
  readonly #ports: ReceiverPorts
  readonly #inbox: Inbox<Message>
  readonly #writer: StoreWriter | null
  readonly #maxAgeMs: Millis
  private readonly reorderBuffer: ReorderBuffer<Message>
  private readonly parked = new Map<PeerKey, PushedDelivery[]>()
  readonly #putOffs = new Deferrals()
  #settling: DeliveryId[] = []
  #settlesMax = 0
  /** When to send the settles: Infinity if there are none, 0 for immediately. */
  #settleAtMs: Millis = Infinity
  #retrying: FrameOf<'retry'>['items'] = []
  #rejecting: FrameOf<'reject'>['items'] = []
  readonly #leases = new Leases()
  readonly #receipts = new Receipts()
  /** The number of the session. A delivery is settled only in the session in which it was pushed. */
  #sessionNo = 0

  constructor(ports: ReceiverPorts, keeping?: InboxPersistence) {
    this.#ports = ports
    this.reorderBuffer = new ReorderBuffer(ports.credit)
    this.#inbox = new Inbox(keeping, ports.credit)
    this.#writer = keeping?.writer ?? null
    this.#maxAgeMs = ports.maxAgeMs ?? (keeping ? Infinity : MAX_AGE_MS)
  }

  connected({ leaseMs, creditMax }: Pick<FrameOf<'welcome'>, 'leaseMs' | 'creditMax'>): void {
    this.#sessionNo += 1
    this.#settlesMax = Math.min(SETTLES_MAX, this.#ports.credit >> 3, creditMax >> 3)
    this.#leases.connected(leaseMs)
  }

  /** Call when the session has ended. Unsettled messages are pushed again after their pause. */
  disconnected(): void {
    this.#sessionNo += 1
    this.parked.clear()
    this.reorderBuffer.clear()
    this.takeSettles()
    this.#retrying = []
    this.#rejecting = []
    this.#leases.disconnected()
  }

  /** Call when the database was restored, because delivery ids then have a different meaning. */
  restored(): void {
    this.#putOffs.clear()
  }

  get wakeAtMs(): Millis {
    return Math.min(this.#leases.wakeAtMs, this.reorderBuffer.wakeAtMs, this.#settleAtMs)
  }

  tick(nowMs: Millis): void {
    const due = this.reorderBuffer.takeDue(nowMs)
    for (const message of due) this.#accept(message)
    // The next message follows these in its lane, so hand out all of them first.
    for (const message of due) this.#acceptNext(message)
  }

  pushedWith(deliveries: FrameOf<'pushWith' | 'pushBody'>['deliveries'], nowMs: Millis): void {
    this.pushed(deliveries.map(pushedOf), nowMs)
  }

  pushed(deliveries: readonly PushedDelivery[], nowMs: Millis): void {
    for (const delivery of deliveries) {
      const waiting = this.parked.size > 0 ? this.parked.get(delivery.sender) : undefined
      if (waiting) this.#waitBehind(waiting, delivery)
      else this.#take(delivery, nowMs)
    }
  }

  /** Resumes a sender's waiting messages in order, because the sender's key has arrived. */
  unlock(sender: PeerKey, nowMs: Millis): void {
    const waiting = this.parked.get(sender)
    if (!waiting) return
    this.parked.delete(sender)
    this.pushed(waiting, nowMs)
  }

  refuse(sender: PeerKey, nowMs: Millis): void {
    const waiting = this.parked.get(sender)
    if (!waiting) return
    this.parked.delete(sender)
    for (const delivery of waiting) this.#putOff(delivery, { afterMs: KEYLESS_RETRY_MS, nowMs })
  }

  receipted(items: FrameOf<'receipts'>['items']): void {
    for (const receipt of this.#receipts.take(items)) this.#ports.effects.emit({ type: 'receipt', ...receipt })
    this.#settleUnread(items)
  }

  settle(message: Message): void {
    if (message.state !== 'open') return
    message.state = 'settled'
    this.#leases.release(message)
    this.#inbox.settled(message)
    this.#ports.counters.settled += 1
    this.#ended(message, null)
    this.#settleWhenKept(message)
  }

  reject(message: Message, reason: string): void {
    if (message.state !== 'open') return
    message.state = 'rejected'
    this.#leases.release(message)
    const said = printable(reason)
    this.#inbox.rejected(message, said)
    this.#ended(message, said)
    this.#whenKept(() => this.#rejectIfCurrent(message, said))
  }

  extend(message: Message, forMs: Millis | null): void {
    if (message.state !== 'open' || message.sessionNo !== this.#sessionNo) return
    this.#leases.extend(message, forMs)
    this.#ports.effects.flushSoon()
  }

  /** Extends the lease of a message until the application settles, rejects or returns it. */
  hold(message: Message): void {
    if (message.state === 'open' && this.#leases.hold(message)) this.#ports.effects.flushSoon()
  }

  post(post: OutgoingMessage): void {
    this.#ports.post(post)
  }

  retry(message: Message, afterMs: Millis): void {
    if (message.state !== 'open') return
    message.state = 'put off'
    this.#leases.release(message)
    this.#inbox.reopened(message)
    this.#ports.counters.retried += 1
    if (message.sessionNo !== this.#sessionNo) return
    const wholeMs = Math.ceil(Math.min(Math.max(afterMs, 0), RETRY_MAX_MS)) || 0
    this.#retrying.push({ id: message.deliveryId, afterMs: wholeMs })
    this.#ports.effects.flushSoon()
  }

  takeFrames(nowMs: Millis): readonly ReceiverFrame[] {
    if (this.#settling.length > 0) this.#settleAtMs = Math.min(this.#settleAtMs, nowMs + SETTLE_WITHIN_MS)
    const areSettlesDue = nowMs >= this.#settleAtMs
    const isIdle = this.#retrying.length === 0 && this.#rejecting.length === 0 && !this.#leases.isRequested
    if (!areSettlesDue && isIdle && nowMs < this.#leases.wakeAtMs) return NO_FRAMES
    const retrying = this.#retrying
    const rejecting = this.#rejecting
    this.#retrying = []
    this.#rejecting = []
    return [
      ...(areSettlesDue ? this.takeSettles() : []),
      ...chunksOf(retrying, BATCH_MAX).map((items) => ({ type: 'retry' as const, items })),
      ...chunksOf(rejecting, BATCH_MAX).map((items) => ({ type: 'reject' as const, items })),
      ...this.#leases.takeFrames(nowMs, this.#sessionNo),
    ]
  }

  get settlesWaiting(): number {
    return this.#settling.length
  }

  /** Returns all settles, including those that are not due. */
  takeSettles(): readonly FrameOf<'settle'>[] {
    const settling = this.#settling
    if (settling.length === 0) return NO_FRAMES
    this.#settling = []
    this.#settleAtMs = Infinity
    return chunksOf(settling, BATCH_MAX).map((ids) => ({ type: 'settle', ids }))
  }

  #take(delivery: PushedDelivery, nowMs: Millis): void {
    const afterMs = this.#putOffs.waitMs(delivery, nowMs)
    if (afterMs > 0) return this.#putOff(delivery, { afterMs, nowMs })
    const whole = this.#open(delivery, nowMs)
    if (whole === 'asked') return this.#park(delivery)
    if (whole === 'later') return this.#putOff(delivery, { afterMs: RECHECK_MS, nowMs })
    this.#putOffs.release(delivery.sender, delivery.id)
    if ('flaw' in whole) this.#endUnopened(delivery, whole.flaw)
    else this.#takeOpened(delivery, whole, nowMs)
  }

  /** Opens a delivery. `asked` or `later`: a required key or statement is missing. */
  #open(delivery: PushedDelivery, nowMs: Millis): OpenedMessage | { flaw: string } | 'asked' | 'later' {
    const opened = this.#ports.opening.open(delivery, nowMs)
    if (opened === 'asked' || opened === 'later') return opened
    const flaw = opened.ok ? opened.note && flawOf(opened.note, delivery) : opened.reason
    return flaw ? { flaw } : this.#ports.groups.open(delivery, opened as OpenedEnvelope)
  }

  #takeOpened(delivery: PushedDelivery, opened: OpenedMessage, nowMs: Millis): void {
    const sessionNo = this.#sessionNo
    const from = this.#ports.users.senderUser(delivery.sender, nowMs)
    const message = new Message(this, { pushed: delivery, opened, from, receivedAtMs: nowMs, sessionNo })
    if (this.#isNext(message) && (this.reorderBuffer.isEmpty || !message.stream)) this.#accept(message)
    else this.#takeInTurn(message, bytesOf(delivery), nowMs)
  }

  /** Accepts the message immediately if no earlier message of its lane is held or missing. */
  #takeInTurn(message: Message, byteCount: number, nowMs: Millis): void {
    const { counters } = this.#ports
    if (this.reorderBuffer.hold(message, byteCount, nowMs)) counters.duplicates += 1
    else if (!this.#isNext(message)) counters.reordered += 1
    this.#acceptNext(message)
    this.tick(nowMs) // Enforces the buffer's limits.
  }

  /** Accepts the messages held in this message's lane, up to one that still waits for an earlier message. */
  #acceptNext(of: Message): void {
    const { reorderBuffer } = this
    const take = () => reorderBuffer.takeNext(of, this.#isNext)
    for (let next = take(); next; next = take()) this.#accept(next)
  }

  readonly #isNext = (message: Message): boolean => this.#inbox.missingBefore(message) === 0

  #accept(message: Message): void {
    const { effects } = this.#ports
    const verdict = this.#inbox.receive(message)
    message.isRedriven = verdict === 'redriven'
    if (verdict === 'fresh' || verdict === 'redriven') return this.#handOut(message)
    const { sender, envelopeId, deliveryId } = message
    if (verdict === 'taken') return this.#rejectTampered({ id: deliveryId, sender, envelopeId }, 'place_taken')
    if (verdict === 'forked') effects.emit({ type: 'forked', sender, envelopeId })
    else if (verdict === 'duplicate' || !('gap' in verdict)) return this.#acceptRepeated(message, verdict)
    else effects.emit({ type: 'gap', sender, envelopeId, missing: verdict.gap })
    this.#handOut(message)
  }

  #acceptRepeated(message: Message, verdict: Repeated<Message>): void {
    this.#ports.counters.duplicates += 1
    if (verdict === 'duplicate') {
      this.#ended(message, null) // the first confirmation may be lost, and a second one has no effect
      return this.#settleWhenKept(message)
    }
    if ('rejected' in verdict) return this.#whenKept(() => this.#rejectIfCurrent(message, verdict.rejected))
    const { deliveryId, sessionNo } = message
    Object.assign(verdict.running, { deliveryId, sessionNo })
  }

  #handOut(message: Message): void {
    const { counters, effects, isAnswer } = this.#ports
    const isOld = message.receivedAtMs - message.sentAtMs > this.#maxAgeMs
    if (isOld && !message.isRedriven) return this.#refuseOld(message)
    counters.received += 1
    if (message.note && isAnswer(message, this.#inbox)) this.#endAnswer(message)
    else effects.deliver(message)
  }

  /**
   * Settles a reply, unless it has a file: its key is lost once the message is settled, so the requester settles it.
   */
  #endAnswer(message: Message): void {
    if (message.attachment === null) this.settle(message)
    else this.hold(message)
  }

  /** Confirms the end of a message before its settle or reject is stored, so that one write stores both. */
  #ended(message: Message, reason: string | null): void {
    const { hooks } = this.#ports
    hooks.forget?.(message, reason)
    if (message.note?.confirm) hooks.ended?.(message, reason)
  }

  #putOff(delivery: PushedDelivery, until: { afterMs: Millis; nowMs: Millis }): void {
    this.#putOffs.defer(delivery, until)
    this.#retrying.push({ id: delivery.id, afterMs: Math.ceil(until.afterMs) })
    this.#ports.effects.flushSoon()
  }

  #waitBehind(waiting: PushedDelivery[], delivery: PushedDelivery): void {
    waiting.push(delivery)
    this.#ports.opening.waitsBehind(delivery)
  }

  #park(delivery: PushedDelivery): void {
    const waiting = this.parked.get(delivery.sender)
    if (waiting) waiting.push(delivery)
    else this.parked.set(delivery.sender, [delivery])
    this.#ports.effects.flushSoon() // requests the key
  }

  #refuseOld(message: Message): void {
    const { sender, envelopeId, sentAtMs } = message
    this.#ports.effects.emit({ type: 'too_old', sender, envelopeId, sentAtMs })
    this.reject(message, TOO_OLD)
  }

  /** Settles a message whose key was deleted when it was settled before. Refuses others that don't open. */
  #endUnopened(delivery: PushedDelivery, reason: string): void {
    if (reason === 'settled') return this.#settleUnread([delivery])
    const mayBeOthers = delivery.body && delivery.attempt < POOL_ATTEMPTS_MAX && this.#ports.worksForPools()
    if (!mayBeOthers) return this.#rejectTampered(delivery, reason)
    this.#tampered(delivery, reason)
    this.#retrying.push({ id: delivery.id, afterMs: POOL_RETRY_MS })
    this.#ports.effects.flushSoon()
  }

  /**
   * Rejects a delivery. The broker stores it as a dead letter, because other keys or a later version might be able to
   * open it.
   */
  #rejectTampered(delivery: Pick<PushedDelivery, 'id' | 'sender' | 'envelopeId'>, reason: string): void {
    this.#tampered(delivery, reason)
    this.#rejecting.push({ id: delivery.id, reason })
    this.#ports.effects.flushSoon()
  }

  #tampered({ sender, envelopeId }: Pick<PushedDelivery, 'sender' | 'envelopeId'>, reason: string): void {
    this.#ports.counters.tampered += 1
    this.#ports.effects.emit({ type: 'tamper', sender, envelopeId, reason })
  }

  #settleUnread(items: readonly Pick<PushedDelivery, 'id'>[]): void {
    const sessionNo = this.#sessionNo
    this.#whenKept(() => {
      if (sessionNo === this.#sessionNo) for (const { id } of items) this.#settleSoon(id)
    })
  }

  #settleWhenKept(message: Message): void {
    if (!this.#writer) return this.#settleIfCurrent(message)
    this.#whenKept(() => this.#settleIfCurrent(message))
  }

  #whenKept(then: () => void): void {
    if (!this.#writer) return then()
    this.#writer.whenWritten(then)
    this.#ports.effects.flushSoon()
  }

  #settleIfCurrent({ sessionNo, deliveryId, pool, receipts, body, attempt }: Message): void {
    if (sessionNo !== this.#sessionNo) return
    const isAlone = attempt > ALONE_AFTER_ATTEMPTS // such a delivery blocks all others until it is settled
    this.#settleSoon(deliveryId, pool || receipts !== 'none' || body.length > ALONE_BYTES || isAlone)
  }

  #rejectIfCurrent({ sessionNo, deliveryId }: Message, reason: string): void {
    if (sessionNo !== this.#sessionNo) return
    this.#rejecting.push({ id: deliveryId, reason })
    this.#ports.effects.flushSoon()
  }

  #settleSoon(id: DeliveryId, isAwaited?: unknown): void {
    this.#settling.push(id)
    const isDue = isAwaited || this.#settling.length >= this.#settlesMax
    if (isDue) this.#settleAtMs = 0
    if (isDue || this.#settleAtMs === Infinity) this.#ports.effects.flushSoon()
  }
}

/** Returns the size of a delivery as the broker counts it. */
const bytesOf = ({ envelope, body }: PushedDelivery): number => envelope.length + (body?.length ?? 0)

function pushedOf(delivery: FrameOf<'pushWith' | 'pushBody'>['deliveries'][number]): PushedDelivery {
  const { push, terms } = delivery
  const { id, envelopeId, sender, priority, attempt, enqueuedAtMs, envelope } = push
  const fields = { id, envelopeId, sender, priority, attempt, enqueuedAtMs, envelope, terms }
  return 'body' in delivery ? { ...fields, body: delivery.body } : fields
}

/** Returns the contradiction between an envelope's sealed contents and its outer fields. */
function flawOf(note: Note, { terms }: PushedDelivery): string | null {
  if (note.isEphemeral) return 'is_ephemeral'
  const isOther = note.thread !== undefined && terms && terms.thread !== NO_THREAD && terms.thread !== note.thread
  return isOther ? 'wrong_thread' : null
}

/** Replaces all but printable ASCII, because the broker would refuse the rejection. */
const printable = (text: string): string => text.replace(/[^ -~]/gu, '?').slice(0, REASON_MAX)
