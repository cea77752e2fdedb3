/**
 * Receives the member's messages for one session: connects to the host, or becomes the host if there is none. When the
 * host ends, it reports to the next one which messages the session holds, and what it did with others.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { type Millis, type PoolId, withResolvers } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { Message, MessageActions } from '../inbox/message.ts'
import { endInMailbox, type FinalReply, messageEnded, postReply } from '../inbox/replies.ts'
import type { OutgoingMessage, Receipt } from '../outbox/lane.ts'
import type { Enqueued } from '../peer.ts'
import type { Status } from '../presence/presence-client.ts'
import { type FinalOutcome, type MailClaim, type MailId, type MailOutcome, mailboxOf } from './distribution.ts'
import type { MailboxHost } from './mailbox-host.ts'
import {
  dialHost,
  type HostFrame,
  type HostLink,
  LINK_VERSION,
  type LinkError,
  type MailFields,
  messageOf,
  outcomeOf,
} from './mailbox-link.ts'

export interface MemberMailboxPorts {
  /** The path of the host's socket. */
  readonly path: string
  /** The session's name on the link. */
  readonly label: string
  readonly credit: number
  /** Whether the application marks messages as read. */
  readonly marksRead: boolean
  /** Whether the session takes only messages of pools. */
  readonly isForPools: boolean
  /** Whether unread messages go to a session that holds none, if this one holds others. */
  readonly sharesUnread: boolean
  /** Makes this process the host; null if another process is. */
  readonly startHost: () => Promise<MailboxHost | null>
  readonly deliver: (message: Message) => void
  readonly withdrawn: (message: Message) => void
  /** Called when the application has settled, rejected or returned a message. */
  readonly finished: (message: Message) => void
  readonly post: (post: OutgoingMessage) => void
  /** Called when this process can't be the host. */
  readonly hostFailed: (error: unknown) => void
}

interface HeldMessage extends Pick<MailClaim, 'id' | 'place'> {
  readonly message: Message
  isRead: boolean
}

/** A settled or rejected message whose outcome no host has confirmed. */
interface UnconfirmedOutcome extends Pick<MailClaim, 'id' | 'place'> {
  readonly outcome: FinalOutcome
  readonly confirmed: ReturnType<typeof withResolvers<boolean>>
  /** The reply that the host sends with the outcome, until it is stored. */
  answer?: Answer | undefined
}

interface Answer {
  readonly message: Message
  readonly reply: FinalReply
  /** Called when the host has refused the reply. */
  readonly refused: (error: SealpostError) => void
  readonly receipt: ReturnType<typeof withResolvers<Receipt>>
}

/** The pauses between attempts to find a host grow within these limits. */
const SEARCH_PAUSE_MS: Millis = 40
const SEARCH_PAUSE_MAX_MS: Millis = 1_000
/** The number of attempts to find a host, about 2 s, for which a session gives way to the others. */
const GIVING_WAY_MISSES = 8
/** The pauses between attempts to be the host after a failure. */
const HOST_PAUSE_MS: Millis = 1_000
const HOST_PAUSE_MAX_MS: Millis = 60_000
const CONFIRMED_WITHIN_MS: Millis = 2_000
/** How long a message waits whose reply was refused. */
const REFUSED_PAUSE_MS: Millis = 5_000
/** The first version of the host that sends replies. */
const ANSWERING_VERSION = 2
const THREADS_MAX = 256
/** A host confirms within milliseconds. Only outcomes that a host stored just before its end stay here. */
const UNCONFIRMED_MAX = 4_096

export class MemberMailbox implements MessageActions {
  readonly #ports: MemberMailboxPorts
  readonly #held = new Map<MailId, HeldMessage>()
  readonly #byMessage = new WeakMap<Message, HeldMessage>()
  readonly #unconfirmed = new Map<MailId, UnconfirmedOutcome>()
  /** The replies that a host has stored, until it reports what the broker has replied. */
  readonly #receipts = new Map<MailId, Answer['receipt']>()
  readonly #threads = new Set<string>()
  readonly #closing = new AbortController()
  #status: Status = { availability: 'idle' }
  #pools: readonly PoolId[] = []
  #link: HostLink | null = null
  /** The version of the host; 0 before its welcome. */
  #hostVersion = 0
  #host: MailboxHost | null = null
  #wasLinked = false
  #hostFailures = 0
  #hostAgainAtMs: Millis = 0
  #running: Promise<void> | null = null
  /** Whether the session takes no more messages. */
  #isEnding = false
  constructor(ports: MemberMailboxPorts) {
    this.#ports = ports
  }

  get host(): MailboxHost | null {
    return this.#host
  }

  get status(): Status {
    return this.#status
  }

  start(): void {
    this.#running ??= this.#run()
  }

  has(message: Message): boolean {
    return this.#byMessage.has(message)
  }

  /** Returns the mailbox of a message from the host; null for a message to the session itself. */
  mailboxOf(message: Message): string | null {
    const held = this.#byMessage.get(message)
    return held ? mailboxOf(held.id) : null
  }

  /** Takes the messages of these pools from now on, and of no others. */
  takePools(pools: readonly PoolId[]): void {
    this.#pools = pools
    this.#link?.send({ type: 'pools', pools })
  }

  takeThread(thread: string): void {
    this.#noteThread(thread)
    this.#link?.send({ type: 'thread', thread })
  }

  setStatus(status: Status): void {
    this.#status = status
    this.#link?.send({ type: 'status', status })
  }

  markRead(message: Message): void {
    const held = this.#byMessage.get(message)
    if (!held || held.isRead || message.state !== 'open') return
    held.isRead = true
    this.#link?.send({ type: 'read', id: held.id, isMarked: this.#ports.marksRead })
  }

  /** Resolves when a host has stored the outcomes so far; with false if another session has one of the messages. */
  async outcomesStored(): Promise<boolean> {
    const all = await Promise.all([...this.#unconfirmed.values()].map(({ confirmed }) => confirmed.promise))
    return all.every((isStored) => isStored)
  }

  /** Waits until the outcomes are stored, but at most 2 s. Then the messages that are left go to other sessions. */
  async close(): Promise<void> {
    this.#isEnding = true
    const patience = delay(CONFIRMED_WITHIN_MS, undefined, { signal: this.#closing.signal }).catch(() => undefined)
    await Promise.race([this.outcomesStored(), patience])
    this.#closing.abort()
    for (const { answer } of this.#unconfirmed.values()) answer?.refused(notStored())
    for (const held of this.#held.values()) this.#withdraw(held)
    this.#link?.end()
    await this.#running
    await this.#host?.stop()
  }

  settle(message: Message): void {
    this.#finish(message, { kind: 'settled' })
  }

  reject(message: Message, reason: string): void {
    this.#finish(message, { kind: 'rejected', reason })
  }

  retry(message: Message, afterMs: Millis): void {
    this.#finish(message, { kind: 'returned', afterMs })
  }

  extend(message: Message, forMs: Millis | null): void {
    const held = this.#byMessage.get(message)
    if (held && message.state === 'open') this.#link?.send({ type: 'extend', id: held.id, forMs })
  }

  post(post: OutgoingMessage): void {
    this.#ports.post(post)
  }

  #finish(message: Message, outcome: MailOutcome): void {
    const held = this.#byMessage.get(message)
    if (!held || message.state !== 'open') return
    const { id, place } = held
    if (outcome.kind !== 'returned') this.#noteUnconfirmed({ id, place, outcome, confirmed: withResolvers<boolean>() })
    this.#link?.send({ type: 'ended', id, outcome })
    this.#ended(held, outcome)
  }

  #ended({ id, message }: HeldMessage, { kind }: MailOutcome): void {
    message.state = STATES[kind]
    this.#held.delete(id)
    this.#ports.finished(message)
  }

  /** Lets the host send the reply and end the message in one write. Resolves when a host has stored both. */
  #endWith(reply: FinalReply, held: HeldMessage): Promise<Enqueued> {
    const { id, place, message } = held
    const outcome = outcomeOf(reply)
    const confirmed = withResolvers<boolean>()
    const receipt = withResolvers<Receipt>()
    receipt.promise.catch(() => undefined) // prevents an unhandled rejection
    return new Promise((resolve, refused) => {
      const answer = { message, reply, refused, receipt }
      this.#noteUnconfirmed({ id, place, outcome, confirmed, answer })
      this.#ended(held, outcome)
      this.#sendAnswer(this.#unconfirmed.get(id)!)
      void confirmed.promise.then((isStored) => {
        if (isStored) resolve({ outboxNo: 0, receipt: receipt.promise })
        else refused(messageEnded())
      })
    })
  }

  /** Sends an outcome again, with its reply. */
  #sendAnswer(ended: UnconfirmedOutcome): void {
    const { id, outcome, answer } = ended
    if (!this.#link || this.#hostVersion === 0) return // it follows the welcome
    if (!answer) this.#link.send({ type: 'ended', id, outcome: withoutReply(outcome) })
    else if (this.#hostVersion >= ANSWERING_VERSION) this.#link.send({ type: 'answered', id, outcome })
    else this.#replyItself(ended, answer)
  }

  /** Replies in place of a host that can't: first the reply is stored, in the store of this session, then the outcome. */
  #replyItself(ended: UnconfirmedOutcome, { message, reply, receipt }: Answer): void {
    let isStored = false
    const reports = {
      kept: () => {
        isStored = true
        ended.answer = undefined
        this.#sendAnswer(ended)
      },
      accepted: receipt.resolve,
      refused: (error: SealpostError) => {
        receipt.reject(error)
        if (isStored) return
        this.#link?.send({ type: 'ended', id: ended.id, outcome: { kind: 'returned', afterMs: REFUSED_PAUSE_MS } })
        this.#replyRefused(ended, error)
      },
    }
    postReply(message, { ...reply, reports }, (post) => this.#ports.post(post))
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing
    for (let misses = 0; !signal.aborted; misses++) {
      const isLinked = await this.#linkOnce()
      if (isLinked) misses = 0
      if (isLinked || signal.aborted || (this.#mayHost(misses) && (await this.#becomesHost()))) continue
      const pauseMs = Math.min(SEARCH_PAUSE_MAX_MS, SEARCH_PAUSE_MS * 1.5 ** misses)
      // random, because several sessions may have tried at once
      await delay(pauseMs * (0.5 + Math.random()), undefined, { signal }).catch(() => undefined)
    }
  }

  /** Connects to the host, and resolves when the connection has ended. Resolves with false if there is no host. */
  async #linkOnce(): Promise<boolean> {
    const ended = withResolvers<void>()
    const received = (frame: HostFrame) => this.#received(frame)
    const link = await dialHost(this.#ports.path, { received, closed: ended.resolve })
    if (!link) return false
    if (this.#closing.signal.aborted) link.end()
    else this.#joined(link)
    await ended.promise
    this.#link = null
    this.#hostVersion = 0
    for (const { reject } of this.#receipts.values()) reject(unreported())
    this.#receipts.clear()
    return true
  }

  /** A session that takes only messages of pools lets the others be the host. */
  #mayHost(misses: number): boolean {
    return !this.#ports.isForPools || !this.#wasLinked || misses >= GIVING_WAY_MISSES
  }

  async #becomesHost(): Promise<boolean> {
    if (this.#host || performance.now() < this.#hostAgainAtMs) return false
    try {
      const host = await this.#ports.startHost()
      this.#host = host
      if (host) void host.ended.then((error) => this.#hostEnded(error))
      return host !== null
    } catch (error) {
      this.#hostFailed(error)
      return false
    }
  }

  #hostEnded(error: unknown): void {
    this.#host = null
    if (error) this.#hostFailed(error)
  }

  #hostFailed(error: unknown): void {
    const pauseMs = Math.min(HOST_PAUSE_MAX_MS, HOST_PAUSE_MS * 2 ** this.#hostFailures)
    this.#hostFailures += 1
    this.#hostAgainAtMs = performance.now() + pauseMs
    this.#ports.hostFailed(error)
  }

  #joined(link: HostLink): void {
    this.#link = link
    const { label, credit, isForPools, sharesUnread } = this.#ports
    this.#wasLinked = true
    const claims = [...this.#openClaims(), ...this.#endedClaims()]
    const report = { label, credit, status: this.#status, claims, threads: [...this.#threads], pools: this.#pools }
    link.send({ type: 'hello', version: LINK_VERSION, ...report, isForPools, sharesUnread })
  }

  *#openClaims(): Iterable<MailClaim> {
    for (const { id, place, isRead } of this.#held.values()) yield { id, place, isRead }
  }

  /** The frames that follow the welcome contain the replies, because a report has a maximum length. */
  *#endedClaims(): Iterable<MailClaim> {
    for (const { id, place, outcome, answer } of this.#unconfirmed.values())
      yield { id, place, isRead: true, ...(!answer && { outcome: withoutReply(outcome) }) }
  }

  #welcomed(version: number): void {
    this.#hostVersion = version
    for (const ended of [...this.#unconfirmed.values()]) if (ended.answer) this.#sendAnswer(ended)
  }

  #received(frame: HostFrame): void {
    switch (frame.type) {
      case 'welcome':
        return this.#welcomed(frame.version)
      case 'message':
        return this.#take(frame.id, frame.message)
      case 'recall':
        return this.#recalled(frame.id)
      case 'confirmed':
        return this.#noteConfirmed(frame.id, true)
      case 'lost':
        return this.#lost(frame.id)
      case 'refused':
        return this.#refused(frame.id, errorOf(frame.error))
      case 'receipt':
        return this.#receiptCame(frame.id, frame.receipt)
      default: // a later version sent it
    }
  }

  #take(id: MailId, fields: MailFields): void {
    if (this.#isEnding || this.#held.has(id)) return
    const early = this.#unconfirmed.get(id)
    if (early) return this.#sendAnswer(early)
    const message = messageOf(fields, this)
    const held: HeldMessage = { id, place: fields.place, message, isRead: false }
    endInMailbox(message, (reply) => this.#endWith(reply, held))
    this.#held.set(id, held)
    this.#byMessage.set(message, held)
    // Another version of the host gives this session all messages. It asks for unread ones, and gets them at the end.
    if (this.#ports.isForPools && !message.pool) return
    this.#noteThread(message.thread)
    this.#ports.deliver(message)
  }

  #recalled(id: MailId): void {
    const held = this.#held.get(id)
    if (held?.isRead) return this.#link?.send({ type: 'read', id })
    if (held) this.#withdraw(held)
    this.#link?.send({ type: 'released', id })
  }

  /** Another session has the message, so this session's work on it counts for nothing. */
  #lost(id: MailId): void {
    this.#noteConfirmed(id, false)
    const held = this.#held.get(id)
    if (held) this.#withdraw(held)
  }

  #refused(id: MailId, error: SealpostError): void {
    const ended = this.#unconfirmed.get(id)
    if (ended) this.#replyRefused(ended, error)
  }

  #replyRefused({ id, answer, confirmed }: UnconfirmedOutcome, error: SealpostError): void {
    this.#unconfirmed.delete(id)
    if (answer) answer.message.state = 'put off'
    answer?.refused(error)
    confirmed.resolve(false)
  }

  #receiptCame(id: MailId, receipt: Receipt | LinkError): void {
    const waiting = this.#receipts.get(id) ?? this.#unconfirmed.get(id)?.answer?.receipt
    this.#receipts.delete(id)
    if ('code' in receipt) waiting?.reject(errorOf(receipt))
    else waiting?.resolve(receipt)
  }

  #withdraw({ id, message }: HeldMessage): void {
    this.#held.delete(id)
    message.state = 'put off' // its actions have no effect from now on
    this.#ports.withdrawn(message)
  }

  #noteThread(thread: string | null): void {
    if (thread === null) return
    this.#threads.delete(thread)
    this.#threads.add(thread)
    if (this.#threads.size > THREADS_MAX) this.#threads.delete(this.#threads.values().next().value!)
  }

  #noteUnconfirmed(ended: UnconfirmedOutcome): void {
    this.#unconfirmed.set(ended.id, ended)
    if (this.#unconfirmed.size > UNCONFIRMED_MAX) this.#noteConfirmed(this.#unconfirmed.keys().next().value!, false)
  }

  #noteConfirmed(id: MailId, isStored: boolean): void {
    const ended = this.#unconfirmed.get(id)
    if (isStored && ended?.answer) this.#receipts.set(id, ended.answer.receipt)
    ended?.confirmed.resolve(isStored)
    this.#unconfirmed.delete(id)
  }
}

function withoutReply(outcome: FinalOutcome): FinalOutcome {
  return outcome.kind === 'settled' ? { kind: 'settled' } : { kind: 'rejected', reason: outcome.reason }
}

const errorOf = ({ code, message, isRetryable }: LinkError): SealpostError =>
  new SealpostError(code, message, { isRetryable })

const notStored = (): SealpostError =>
  new SealpostError('closed', 'This session was closed before a host had stored the reply.')

const unreported = (): SealpostError =>
  new SealpostError('kept_for_later', 'The process that has stored the reply has ended. The next host sends the reply.')

const STATES = { settled: 'settled', rejected: 'rejected', returned: 'put off' } as const
