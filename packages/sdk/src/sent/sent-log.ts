/**
 * Keeps a log of sent messages and of what became of them (`@sealpost/sdk/sent`). With a store, the log is part of the
 * peer's store, and later processes continue it. The log knows three kinds of reports: the broker's reply to the send,
 * its receipts, and confirmations, which the recipient has signed.
 */
import { contentHash, type Note, readConfirmation } from '@sealpost/identity'
import type { ReceiptWish } from '@sealpost/protocol'
import { type EnvelopeId, type Millis, type PeerKey, unicodeName } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { DeliveryReceipt } from '../inbox/inbox.ts'
import { bytesOf, type Message, type SenderUser } from '../inbox/message.ts'
import { type GroupMessage, type OutgoingMessage, postTermsOf, type Receipt, type SendOptions } from '../outbox/lane.ts'
import {
  addHandler,
  callHandlers,
  type Enqueued,
  type EnqueueReports,
  enqueuedBy,
  oncePerPeer,
  type Peer,
  type PeerPorts,
} from '../peer.ts'
import type { PoolSend } from '../pools/pool-sender.ts'
import type { PeerEvent } from '../ports.ts'
import { askBroker, type MessageWhereabouts, reportsIn } from './ask-broker.ts'
import type { TargetPool } from './hooks.ts'
import { type Entry, messageOf, SentRecords, waitFor } from './sent-records.ts'
import {
  changeBy,
  endError,
  hasEnded,
  hasReached,
  type SentAudience,
  type SentMessage,
  type SentReport,
  stateOfOutcome,
  timedOut,
  unknownMessage,
  type WaitGoal,
} from './sent-states.ts'

export { type MessageWhereabouts, type RecipientPresence, withWhereabouts } from './ask-broker.ts'
export { CONFIRMATIONS_MAX } from './hooks.ts'
export {
  type RecordedReply,
  SENT_STATES,
  type SentAudience,
  type SentMessage,
  type SentState,
  WAIT_GOALS,
  type WaitGoal,
} from './sent-states.ts'

export interface TrackedSendOptions extends SendOptions {
  /**
   * The state in which `send` resolves. It also determines the default of `receipts` and `confirm`. Default: `stored`.
   */
  readonly wait?: WaitGoal
  /** The time limit of the wait. The message stays sent after it. Default: no limit. */
  readonly timeoutMs?: Millis
  /**
   * Which confirmations to ask the recipient for: of the `end` of the message, or `all`, also that it was read. Older
   * versions of the SDK and peers without `confirmationsOf` send none. Default: `end` with `wait: 'confirmed'`.
   */
  readonly confirm?: 'end' | 'all'
}

export interface SentFilter {
  /** A recipient, or the user whose device it is. */
  readonly to?: PeerKey
  /** Default: all. */
  readonly limit?: number
}

/** What several messages that are sent together have in common. */
export interface SendTogether {
  /** What the recipients were chosen as, unless they were named themselves. Default: null. */
  readonly audience?: SentAudience | null
}

const logFor = oncePerPeer((ports) => new SentLog(ports))

/**
 * Returns the log of a peer's sent messages. Call it as soon as the peer is open: reports that arrive before are lost.
 * @example const sent = sentLogOf(peer)
 */
export function sentLogOf(peer: Peer): SentLog {
  return logFor(peer)
}

/** The facts of a body that several recipients receive. */
interface SharedBody {
  readonly sendNo: number
  readonly bodyBytes: number
  readonly contentHash: string
}

interface Together {
  readonly sendNo: number
  readonly audience: SentAudience | null
}

export class SentLog {
  readonly #ports: PeerPorts
  readonly #records: SentRecords
  readonly #handlers = new Set<(sent: SentMessage) => void>()
  /** The messages that have an entry, so that the hook does not record them again. */
  readonly #tracked = new WeakSet<OutgoingMessage>()
  readonly #bodies = new WeakMap<GroupMessage, SharedBody>()
  #together: Together | null = null
  #wish: 'end' | 'all' | undefined

  /** Use `sentLogOf` instead. @internal */
  constructor(ports: PeerPorts) {
    this.#ports = ports
    this.#records = ports.tell(({ writer }) => new SentRecords(ports.records, writer))
    ports.observers.add((event) => this.#observe(event))
    ports.tell(({ hooks }) => {
      hooks.arrived = (message, emit) => {
        const { sender, envelopeId, note } = message
        if (!note?.isConfirmation) return this.#replied(message)
        const reason = this.#confirmed(message)
        if (reason !== null) emit({ type: 'tamper', sender, envelopeId, reason })
      }
    })
  }

  /**
   * Records all messages that the peer sends from now on: also replies, requests, and messages to groups, pools and
   * users. By default, the log records only the messages that are sent with it. Confirmations are not recorded, and
   * neither is a message that is refused because its recipient is not online (`ifOnline`).
   * @example const sent = sentLogOf(peer).recordAll()
   */
  recordAll(): this {
    this.#ports.tell(({ hooks }) => {
      hooks.sending = (post) => this.#sending(post)
      hooks.sendingToPool = (pool, send) => this.#sendingToPool(pool, send)
    })
    return this
  }

  /**
   * Asks for confirmations of the messages that `send` sends before it returns, such as a reply or a request. Needs
   * `recordAll`.
   * @example await sentLogOf(peer).asking('end', () => message.reply('done'))
   */
  asking<T>(confirm: 'end' | 'all', send: () => T): T {
    const before = this.#wish
    this.#wish = confirm
    try {
      return send()
    } finally {
      this.#wish = before
    }
  }

  /**
   * Records the messages that `send` sends before it returns as one send with several recipients. Needs `recordAll`.
   * @example sentLogOf(peer).together({}, () => [ben, zoe].map((to) => peer.send(to, 'lunch?')))
   */
  together<T>({ audience = null }: SendTogether, send: () => T): T {
    const before = this.#together
    this.#together = { sendNo: before?.sendNo ?? this.#records.nextNo(), audience }
    try {
      return send()
    } finally {
      this.#together = before
    }
  }

  /**
   * Sends a message and records what becomes of it. Resolves when it has reached the state `wait`.
   * @throws SealpostError `message_rejected`, `message_expired` or `message_struck_out` if the message ended otherwise;
   * `timeout` if it has not reached the state in time; and the errors of `Peer.send`
   * @example const { state } = await sentLogOf(peer).send(ben, 'hello', { wait: 'confirmed', timeoutMs: 60_000 })
   */
  send(to: PeerKey, body: Uint8Array | string, options: TrackedSendOptions = {}): Promise<SentMessage> {
    const { wait = 'stored', timeoutMs = Infinity } = options
    return this.#within({ goal: wait, timeoutMs }, (refused) => this.#begin(to, bytesOf(body), options, { refused }))
  }

  /**
   * Like `Peer.enqueue`, but records what becomes of the message.
   * @throws SealpostError like `Peer.enqueue`
   * @example const { receipt } = await sentLogOf(peer).enqueue(ben, 'written on a train')
   */
  enqueue(to: PeerKey, body: Uint8Array | string, options: TrackedSendOptions = {}): Promise<Enqueued> {
    return enqueuedBy((reports) => this.#begin(to, bytesOf(body), options, reports))
  }

  /**
   * Resolves when a sent message has reached the state. @throws SealpostError `message_unknown`, and those of `send`
   * @example await sentLogOf(peer).wait(envelopeId, 'settled', { timeoutMs: 60_000 })
   */
  wait(
    envelopeId: EnvelopeId,
    goal: WaitGoal,
    { timeoutMs = Infinity }: { timeoutMs?: Millis } = {},
  ): Promise<SentMessage> {
    const entry = this.#records.find(envelopeId)
    if (!entry) return Promise.reject(unknownMessage())
    return this.#within({ goal, timeoutMs }, () => entry)
  }

  /**
   * Returns a sent message; null if the log does not have it.
   * @example const state = sentLogOf(peer).find(envelopeId)?.state
   */
  find(envelopeId: EnvelopeId): SentMessage | null {
    const entry = this.#records.find(envelopeId)
    return entry ? messageOf(entry.record) : null
  }

  /**
   * Returns a sent message and those of the same send to other recipients; an empty list if the log does not have it.
   * @example const waiting = sentLogOf(peer).findSend(envelopeId).filter(({ state }) => state !== 'confirmed')
   */
  findSend(envelopeId: EnvelopeId): SentMessage[] {
    const entry = this.#records.find(envelopeId)
    return entry ? this.#records.siblings(entry).map(({ record }) => messageOf(record)) : []
  }

  /**
   * Returns the sent messages, newest first.
   * @example const lately = sentLogOf(peer).list({ to: ben, limit: 10 })
   */
  list({ to, limit = Infinity }: SentFilter = {}): SentMessage[] {
    const found = this.#records
      .all()
      .map(({ record }) => record)
      .reverse()
    const sent = to === undefined ? found : found.filter(({ user, to: key }) => key === to || user === to)
    return sent.slice(0, limit).map(messageOf)
  }

  /**
   * Asks the broker where messages of this peer are, and whether their recipients are online. The log need not have the
   * messages. Returns one item for each id.
   * @throws SealpostError `not_found` if the broker is of an earlier version; `connection_lost`
   * @example const [where] = await sentLogOf(peer).askBroker([envelopeId])
   */
  async askBroker(envelopeIds: readonly EnvelopeId[]): Promise<MessageWhereabouts[]> {
    const { meshId, brokerKey, signing, tell } = this.#ports
    const url = tell(({ connection }) => connection.publicUrl)
    const found = await askBroker({ url, meshId, brokerKey, identity: { signing } }, envelopeIds)
    for (const where of found) this.#learn(where)
    return found
  }

  /**
   * Calls the handler with each message that changes its state. Returns an unsubscribe function.
   * @example const stop = sentLogOf(peer).onChange(({ envelopeId, state }) => console.log(envelopeId, state))
   */
  onChange(handler: (sent: SentMessage) => void): () => void {
    return addHandler(this.#handlers, handler)
  }

  #begin(to: PeerKey, body: Uint8Array, options: TrackedSendOptions, told: Partial<EnqueueReports>): Entry {
    const { receipts, confirm } = wishesOf(options)
    const note: Note | undefined = confirm && { confirm }
    const { accepted = ignore, ...reports } = told
    const post = { ...postTermsOf(to, { ...options, receipts }, note), body, accepted, refused: ignore, ...reports }
    return this.#ports.tell((engine) => {
      const entry = this.#record(post)
      engine.enqueue(this.#track(entry, post))
      return entry
    })
  }

  /** Records a message that was not sent with the log. */
  #sending(given: OutgoingMessage): OutgoingMessage {
    if (this.#tracked.has(given) || given.note?.isConfirmation) return given
    const post = this.#wish ? { ...given, note: { ...given.note, confirm: this.#wish } } : given
    return this.#track(this.#resent(post) ?? this.#record(post), post)
  }

  #sendingToPool({ id, name, members }: TargetPool, given: PoolSend): PoolSend {
    const send = this.#wish ? { ...given, note: { ...given.note, confirm: this.#wish } } : given
    const to = id as string as PeerKey
    const entry = this.#record({ ...send, to }, { kind: 'pool', id, name }, members)
    return { ...send, ...this.#reportsOf(entry, send) }
  }

  /**
   * Returns the entry of a member to whom a group message is sent again. The broker refused the first one, because the
   * group has changed.
   */
  #resent(post: OutgoingMessage): Entry | undefined {
    const { message, to, note } = post
    if (!message?.isSecond || note?.group === undefined) return undefined
    const body = this.#bodyOf(post)
    const isOf = ({ record }: Entry) => record.contentHash === body.contentHash && record.audience?.id === note.group
    const first = this.#records.all().findLast(isOf)
    if (!first) return undefined
    this.#bodies.set(message, { ...body, sendNo: first.record.sendNo })
    const entry = this.#records
      .siblings(first)
      .find(({ record }) => record.to === to && record.reason === 'stale_roster')
    if (entry) this.#records.change(entry, { state: 'sending', reason: '' })
    return entry
  }

  #record(
    post: Pick<OutgoingMessage, 'to' | 'body' | 'note' | 'terms' | 'message'>,
    audience = this.#audienceOf(post.note),
    poolMembers?: readonly PeerKey[],
  ): Entry {
    const { to, note, terms } = post
    return this.#records.add({
      ...this.#bodyOf(post),
      to: this.#ports.tell(({ users }) => users.current(to)),
      asksReceipts: (terms?.receipts ?? 'none') !== 'none',
      asksConfirmation: note?.confirm !== undefined,
      audience,
      isRequest: note?.isRequest ?? false,
      inReplyTo: note?.inReplyTo ?? null,
      ...(poolMembers && { poolMembers }),
    })
  }

  #audienceOf(note: OutgoingMessage['note']): SentAudience | null {
    const { group, user } = note ?? {}
    if (user !== undefined) return { kind: 'user', id: user, name: '' }
    if (group === undefined) return this.#together?.audience ?? null
    const statement = this.#ports.tell(({ groups }) => groups.statements.find(group))
    return { kind: 'group', id: group, name: unicodeName(statement?.name ?? '') }
  }

  /** Returns the facts of the body, which the recipient hashes as it opens it. */
  #bodyOf(post: Pick<OutgoingMessage, 'body' | 'note' | 'message'>): SharedBody {
    const { message, body, note } = post
    const known = message && this.#bodies.get(message)
    if (known) return known
    const { groups } = this.#ports.crypto
    const text = message ? groups.openBody(message.bytes, body)! : body
    const sendNo = this.#together?.sendNo ?? (message ? this.#records.nextNo() : 0)
    const facts = { sendNo, bodyBytes: text.length, contentHash: contentHash(text, note?.attachment ?? null) }
    if (message) this.#bodies.set(message, facts)
    return facts
  }

  #track(entry: Entry, post: OutgoingMessage): OutgoingMessage {
    const kept = (outboxNo: number) => {
      if (outboxNo > 0) this.#records.change(entry, { outboxNo })
      post.kept?.(outboxNo)
    }
    const tracked = { ...post, ...this.#reportsOf(entry, post), kept }
    this.#tracked.add(tracked)
    return tracked
  }

  #reportsOf(entry: Entry, post: Pick<OutgoingMessage, 'sealed' | 'accepted' | 'refused' | 'message'>) {
    return {
      sealed: (envelopeId: EnvelopeId) => {
        this.#records.change(entry, { envelopeId })
        post.sealed?.(envelopeId)
      },
      accepted: (receipt: Receipt) => {
        this.#accepted(entry, receipt)
        post.accepted(receipt)
      },
      refused: (error: SealpostError) => {
        this.#refused(entry, error)
        post.refused(error)
      },
    }
  }

  #accepted(entry: Entry, { envelopeId, ackedAtMs }: Receipt): void {
    // The recipient's statements came with its key.
    this.#records.change(entry, {
      envelopeId,
      ...(entry.record.audience?.kind === 'pool' ? {} : this.#userOf(entry.record.to)),
    })
    this.#report(entry, { state: 'stored', atMs: Math.floor(ackedAtMs) })
  }

  #refused(entry: Entry, error: SealpostError): void {
    if (error.code === 'no_responder') this.#records.remove(entry)
    else if (error.code === 'maybe_sent') this.#records.change(entry, { reason: error.code })
    else if (error.code !== 'kept_for_later' && error.code !== 'closed')
      this.#report(entry, { state: 'refused', atMs: Date.now(), reason: error.code })
    for (const { failed } of entry.waiters) failed(error)
    entry.waiters.clear()
  }

  #observe(event: PeerEvent): void {
    if (event.type === 'receipt') return this.#receipted(event)
    if (event.type === 'closed') return this.#closed(event.error)
    if (event.type !== 'sent' && event.type !== 'send_failed') return
    const entry = this.#records.all().find(({ record }) => record.outboxNo > 0 && record.outboxNo === event.outboxNo)
    if (!entry) return
    if (event.type === 'sent') this.#accepted(entry, event.receipt)
    else this.#refused(entry, event.error)
  }

  #receipted({ envelopeId, event, atMs }: DeliveryReceipt): void {
    const entry = this.#records.find(envelopeId)
    if (entry) this.#report(entry, { state: event, atMs })
  }

  #learn(where: MessageWhereabouts): void {
    const entry = this.#records.find(where.envelopeId)
    if (entry) for (const report of reportsIn(where)) this.#report(entry, report)
  }

  /** Returns why a confirmation is not valid. One for a message that the log has forgotten is dropped. */
  #confirmed(message: Message): string | null {
    if (message.body.length === 0) return null // it only changes the keys of a ratchet
    const said = readConfirmation(message.body)
    if (!said) return 'confirmation_forged'
    const entry = this.#records.find(said.envelopeId)
    if (!entry) return null
    const isOurs = said.meshId === this.#ports.meshId && this.#isSameUser(said.sender, this.#ports.self)
    const isTheirs = said.recipient === message.sender && this.#isRecipient(said.recipient, entry)
    if (!isOurs || !isTheirs || said.contentHash !== entry.record.contentHash) return 'confirmation_foreign'
    const { outcome, reason, atMs } = said
    this.#report(entry, { state: stateOfOutcome(outcome), atMs, reason, signer: message.sender })
    return null
  }

  /** Notes the first reply to a message. */
  #replied({ inReplyTo, sender, user, deviceLabel, envelopeId, isError }: Message): void {
    const entry = inReplyTo === null ? undefined : this.#records.find(inReplyTo)
    if (!entry || entry.record.reply || !this.#isRecipient(sender, entry)) return
    this.#records.change(entry, { reply: { envelopeId, sender, user, deviceLabel, isError, atMs: Date.now() } })
    callHandlers(this.#handlers, messageOf(entry.record))
  }

  /** Whether the peer is the recipient, a device of the same user, or a member of the pool. */
  #isRecipient(peer: PeerKey, { record: { to, poolMembers = [to] } }: Entry): boolean {
    return poolMembers.some((member) => this.#isSameUser(peer, member))
  }

  #isSameUser(a: PeerKey, b: PeerKey): boolean {
    return a === b || this.#userOf(a).user === this.#userOf(b).user
  }

  #userOf(key: PeerKey): SenderUser {
    return this.#ports.tell(({ users }) => users.senderUser(key, Date.now()))
  }

  #report(entry: Entry, report: SentReport): void {
    const change = changeBy(entry.record, report)
    if (!change) return
    this.#records.change(entry, change)
    this.#wake(entry)
    callHandlers(this.#handlers, messageOf(entry.record))
  }

  #wake({ record, waiters }: Entry): void {
    for (const waiter of waiters) {
      const isReached = hasReached(record, waiter.goal)
      const error = isReached || !hasEnded(record) ? null : endError(record)
      if (isReached) waiter.reached(messageOf(record))
      else if (error) waiter.failed(error)
      if (isReached || error) waiters.delete(waiter)
    }
  }

  #closed(error: SealpostError | null): void {
    for (const { waiters } of this.#records.all()) {
      for (const { failed } of waiters) failed(error ?? new SealpostError('closed', 'This peer was closed.'))
      waiters.clear()
    }
  }

  /** Waits for an entry to reach the goal. */
  #within(
    terms: { goal: WaitGoal; timeoutMs: Millis },
    start: (refused: (error: SealpostError) => void) => Entry,
  ): Promise<SentMessage> {
    return waitFor({ ...terms, timedOut }, start, (entry) => this.#wake(entry))
  }
}

const ignore = (): void => undefined

const RECEIPTS: Readonly<Record<WaitGoal, ReceiptWish>> = {
  stored: 'none',
  pushed: 'all',
  settled: 'end',
  confirmed: 'end',
}

function wishesOf({ wait = 'stored', receipts, confirm }: TrackedSendOptions) {
  const wished = confirm ?? (wait === 'confirmed' ? 'end' : undefined)
  return { receipts: receipts ?? RECEIPTS[wait], confirm: wished }
}
