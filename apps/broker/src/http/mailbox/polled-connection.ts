/**
 * Delivers messages over HTTP. A peer's polls share a session, which ends some time after the last request. It has
 * credit only while a poll waits, so that no delivery is buffered here until its lease expires.
 */
import type { SendOutcome, SocketId } from '@sealpost/core'
import type { Connection, Driver } from '@sealpost/driver'
import {
  type ClientFrame,
  type CloseCode,
  encodeFields,
  type FrameOf,
  type Member,
  type ServerFrame,
} from '@sealpost/protocol'
import type { Queue } from '@sealpost/queue'
import type { DeliveryId, Millis } from '@sealpost/std'
import { type HttpRefusal, isRefused, nameOf, refusedBy, type TokenHolder } from '../tokens.ts'

export type Settling = Extract<ClientFrame, { type: 'settle' | 'retry' | 'reject' | 'extend' }>

interface Poll {
  readonly max: number
  readonly waitMs: Millis
  readonly signal: AbortSignal
}

/** The minimum duration of a poll, which must allow time for a claim. */
const LOOK_MS = 500

interface Waiting {
  readonly max: number
  readonly answer: (answer: PollResult | HttpRefusal) => void
}

const nothing = () => undefined

class PolledConnection implements Connection {
  readonly authority = ''
  // never called: this connection neither enrols nor is paused
  readonly hangUp = nothing
  readonly pause = nothing
  readonly resume = nothing
  readonly member: Member
  private readonly driver: Driver
  private readonly idleMs: Millis
  private readonly ended: () => void
  private readonly socket: SocketId
  private waiting: Waiting | null = null
  /** Deliveries for the next poll, with the time of their push. */
  private readonly arrived = new Map<DeliveryId, { mail: PolledDelivery | ReceiptItem; atMs: Millis }>()
  private lost: LostItem[] = []
  private leaseMs: Millis = 0
  private isLive = false
  private refused: HttpRefusal | null = null
  private credit: number
  private creditSaid: number
  private idle: ReturnType<typeof setTimeout> | undefined

  /** Opens the session with the first poll's credit. It ends `idleMs` after its last request and calls `ended`. */
  constructor(driver: Driver, member: Member, credit: number, options: { idleMs: Millis; ended: () => void }) {
    this.driver = driver
    this.member = member
    this.idleMs = options.idleMs
    this.ended = options.ended
    this.credit = credit
    this.creditSaid = credit
    this.socket = driver.joined(this, (socket) => driver.engine.proven(socket, member, credit))
  }

  /** Waits for deliveries. A newer poll replaces an older one, whose client may be gone. */
  poll({ max, waitMs, signal }: Poll): Promise<PollResult | HttpRefusal> {
    if (this.refused) return Promise.resolve(this.refused)
    this.answer(EMPTY_RESULT)
    clearTimeout(this.idle)
    const early = this.take(max)
    if (!isEmpty(early)) {
      this.rest()
      return Promise.resolve(early)
    }
    const { promise, resolve } = Promise.withResolvers<PollResult | HttpRefusal>()
    const waiting = { max, answer: resolve }
    const giveUp = () => this.waiting === waiting && this.answer(EMPTY_RESULT)
    const late = setTimeout(giveUp, Math.max(waitMs, LOOK_MS))
    signal.addEventListener('abort', giveUp)
    this.waiting = waiting
    if (signal.aborted) giveUp()
    else this.name(max)
    return promise.finally(() => clearTimeout(late))
  }

  settle(frames: readonly Settling[]): void {
    const { driver, socket } = this
    for (const frame of frames) driver.step(() => driver.engine.received(socket, frame))
    if (!this.waiting) this.rest()
  }

  get isOver(): boolean {
    return this.refused !== null
  }
  get isOpen(): boolean {
    return this.isLive && !this.isOver
  }

  send(frames: readonly ServerFrame[]): SendOutcome {
    for (const frame of frames) this.receive(frame)
    if (this.waiting && this.arrived.size + this.lost.length > 0) this.answer(this.take(this.waiting.max))
    return 'sent'
  }

  close(code: CloseCode, retryAfterMs: Millis): void {
    const refused = refusedBy(code, retryAfterMs)
    this.over(refused)
    this.answer(refused)
  }

  ping(): void {
    this.driver.engine.ponged(this.socket)
  }

  private receive(frame: ServerFrame): void {
    switch (frame.type) {
      case 'welcome':
        return this.welcomed(frame)
      case 'push':
        for (const push of frame.deliveries) this.arrive(push.id, { push, terms: null })
        return
      case 'pushWith':
      case 'pushBody':
        for (const item of frame.deliveries) this.arrive(item.push.id, item)
        return
      case 'receipts':
        for (const item of frame.items) this.arrive(item.id, item)
        return
      case 'recovered':
        this.lost.push(...frame.lost)
        return
      case 'goaway':
        return this.answer({ code: 'restarting', retryAfterMs: frame.retryAfterMs })
      default: // ephemeral messages and presence are not polled
    }
  }

  private welcomed({ leaseMs }: FrameOf<'welcome'>): void {
    this.isLive = true
    this.leaseMs = leaseMs
    queueMicrotask(() => this.sayCredit())
  }

  private arrive(id: DeliveryId, mail: PolledDelivery | ReceiptItem): void {
    this.arrived.delete(id) // return a redelivery once
    this.arrived.set(id, { mail, atMs: performance.now() })
  }

  /** Takes up to `max` deliveries, except those whose lease has expired. */
  private take(max: number): PollResult {
    const since = performance.now() - this.leaseMs
    const deliveries: PolledDelivery[] = []
    const receipts: ReceiptItem[] = []
    for (const [id, { mail, atMs }] of this.arrived) {
      if (deliveries.length + receipts.length === max) break
      this.arrived.delete(id)
      if (atMs <= since) continue
      if ('push' in mail) deliveries.push(mail)
      else receipts.push(mail)
    }
    return { deliveries, receipts, lost: this.lost.splice(0) }
  }

  private answer(answer: PollResult | HttpRefusal): void {
    const { waiting } = this
    if (!waiting) return
    this.waiting = null
    waiting.answer(answer)
    this.rest()
    this.name(0)
  }

  /** Sets the credit in a later microtask, because the engine may be pushing. */
  private name(credit: number): void {
    this.credit = credit
    queueMicrotask(() => this.sayCredit())
  }

  private sayCredit(): void {
    const { driver, socket, credit } = this
    if (!this.isOpen || credit === this.creditSaid) return
    this.creditSaid = credit
    driver.step(() => driver.engine.received(socket, { type: 'credit', credit }))
  }

  private rest(): void {
    clearTimeout(this.idle)
    if (this.refused) return
    this.idle = setTimeout(() => {
      this.over({ code: 'session_over' })
      this.driver.disconnected(this.socket)
    }, this.idleMs)
    this.idle.unref()
  }

  private over(refused: HttpRefusal): void {
    clearTimeout(this.idle)
    this.refused = refused
    this.ended()
  }
}

type PushItem = FrameOf<'push'>['deliveries'][number]
type Terms = FrameOf<'pushWith'>['deliveries'][number]['terms']

/** A delivery. `terms` and, for a broadcast, `body` are set as sent. */
interface PolledDelivery {
  readonly push: PushItem
  readonly terms: Terms | null
  readonly body?: Uint8Array
}
type ReceiptItem = FrameOf<'receipts'>['items'][number]
type LostItem = FrameOf<'recovered'>['lost'][number]

interface PollResult {
  readonly deliveries: readonly PolledDelivery[]
  readonly receipts: readonly ReceiptItem[]
  /** Deliveries that left the queue unsettled, reported once. */
  readonly lost: readonly LostItem[]
}

const EMPTY_RESULT: PollResult = { deliveries: [], receipts: [], lost: [] }

export const isEmpty = ({ deliveries, receipts, lost }: PollResult): boolean =>
  deliveries.length + receipts.length + lost.length === 0

export function pollResultJson({ deliveries, receipts, lost }: PollResult) {
  return {
    deliveries: deliveries.map(handedJson),
    receipts: receipts.length > 0 ? encodeFields({ type: 'receipts', items: [...receipts] }).items : [],
    lost: encodeFields({ type: 'recovered', lost: [...lost], isAll: true }).lost,
  }
}

function handedJson({ push, terms, body }: PolledDelivery): Record<string, unknown> {
  if (!terms) return encodeFields({ type: 'push', deliveries: [push] }).deliveries[0]!
  if (!body) {
    const [item] = encodeFields({ type: 'pushWith', deliveries: [{ push, terms }] }).deliveries
    return { ...item!.push, terms: item!.terms }
  }
  const [item] = encodeFields({ type: 'pushBody', deliveries: [{ push, terms, body }] }).deliveries
  return { ...item!.push, terms: item!.terms, body: item!.body }
}

const SETTLE_WITHIN_MS = 10_000

/** The peers that poll, each with one polling session and no socket. */
export class Inboxes {
  private readonly driver: Driver
  private readonly queue: Queue
  private readonly idleMs: Millis
  private readonly sessions = new Map<string, PolledConnection>()

  constructor(driver: Driver, queue: Queue, idleMs: Millis) {
    this.driver = driver
    this.queue = queue
    this.idleMs = idleMs
  }

  /**
   * Waits for deliveries. Returns an empty result after a timeout. `takesOver`: whether to replace the peer's socket.
   * @throws OperatingError if the database does not respond
   */
  async poll(holder: TokenHolder, poll: Poll & { readonly takesOver: boolean }): Promise<PollResult | HttpRefusal> {
    const session = this.sessions.get(nameOf(holder)) ?? (await this.open(holder, poll))
    return isRefused(session) ? session : session.poll(poll)
  }

  async settle(holder: TokenHolder, frames: readonly Settling[]): Promise<HttpRefusal | null> {
    const session = this.sessions.get(nameOf(holder))
    if (!session?.isOpen) return { code: 'session_over' }
    session.settle(frames)
    const isCommitted = await this.driver.ends.committed(session.member, SETTLE_WITHIN_MS)
    return isCommitted ? null : { code: 'try_later', retryAfterMs: 1000 }
  }

  private async open(
    holder: TokenHolder,
    { max, takesOver }: { readonly max: number; readonly takesOver: boolean },
  ): Promise<PolledConnection | HttpRefusal> {
    const { meshId, peerKey } = holder
    if (!takesOver) await this.driver.knowsPresence(meshId)
    if (!takesOver && this.driver.engine.presence.isServed(meshId, peerKey)) return { code: 'session_conflict' }
    const [member] = await this.queue.findMembers(meshId, [peerKey])
    if (!member) return { code: 'token_invalid' }
    return this.sessions.get(nameOf(holder)) ?? this.opened(nameOf(holder), member, max)
  }

  private opened(name: string, member: Member, credit: number): PolledConnection {
    const { driver, idleMs, sessions } = this
    const ended = () => void sessions.delete(name)
    const session = new PolledConnection(driver, member, credit, { idleMs, ended })
    if (session.isOver) return session
    sessions.set(name, session)
    return session
  }
}
