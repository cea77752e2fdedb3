/**
 * Keeps a log of sent messages and of what became of them (`@sealpost/sdk/sent`). With a store, the log is part of the
 * peer's store, and later processes continue it. The log knows three kinds of reports: the broker's reply to the send,
 * its receipts, and confirmations, which the recipient has signed.
 */
import { contentHash, type Note, readConfirmation } from '@sealpost/identity'
import type { ReceiptWish } from '@sealpost/protocol'
import type { EnvelopeId, Millis, PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { DeliveryReceipt } from '../inbox/inbox.ts'
import { bytesOf, type Message, type SenderUser } from '../inbox/message.ts'
import { postTermsOf, type Receipt, type SendOptions } from '../outbox/lane.ts'
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
import type { PeerEvent } from '../ports.ts'
import type { SentRecord } from '../stores/store.ts'
import { askBroker, type MessageWhereabouts } from './ask-broker.ts'
import {
  changeBy,
  hasEnded,
  hasReached,
  type SentMessage,
  type SentReport,
  stateOfOutcome,
  type WaitGoal,
} from './sent-states.ts'

export type { MessageWhereabouts, RecipientPresence } from './ask-broker.ts'
export { SENT_STATES, type SentMessage, type SentState, WAIT_GOALS, type WaitGoal } from './sent-states.ts'

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

/** The number of messages that a log keeps. */
const KEPT_MAX = 500

const logFor = oncePerPeer((ports) => new SentLog(ports))

/**
 * Returns the log of a peer's sent messages. Call it as soon as the peer is open: reports that arrive before are lost.
 * @example const sent = sentLogOf(peer)
 */
export function sentLogOf(peer: Peer): SentLog {
  return logFor(peer)
}

interface Waiter {
  readonly goal: WaitGoal
  readonly reached: (sent: SentMessage) => void
  readonly failed: (error: SealpostError) => void
}

interface Entry {
  record: SentRecord
  readonly waiters: Set<Waiter>
}

export class SentLog {
  readonly #ports: PeerPorts
  /** The messages by number, oldest first. */
  readonly #entries = new Map<number, Entry>()
  readonly #sealed = new Map<EnvelopeId, Entry>()
  readonly #handlers = new Set<(sent: SentMessage) => void>()
  #lastNo: number

  /** Use `sentLogOf` instead. @internal */
  constructor(ports: PeerPorts) {
    this.#ports = ports
    for (const record of ports.sent) this.#adopt(record)
    this.#lastNo = Math.max(Date.now() * 1000, ...this.#entries.keys())
    ports.observers.add((event) => this.#observe(event))
    ports.tell((engine) => {
      engine.confirmations.arrived = (message, emit) => {
        const { sender, envelopeId } = message
        const reason = this.#confirmed(message)
        if (reason !== null) emit({ type: 'tamper', sender, envelopeId, reason })
      }
    })
  }

  #adopt(record: SentRecord): Entry {
    const entry: Entry = { record, waiters: new Set() }
    this.#entries.set(record.no, entry)
    if (record.envelopeId !== null) this.#sealed.set(record.envelopeId, entry)
    return entry
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
    const entry = this.#sealed.get(envelopeId)
    if (!entry) return Promise.reject(unknown())
    return this.#within({ goal, timeoutMs }, () => entry)
  }

  /**
   * Returns a sent message; null if the log does not have it.
   * @example const state = sentLogOf(peer).find(envelopeId)?.state
   */
  find(envelopeId: EnvelopeId): SentMessage | null {
    const entry = this.#sealed.get(envelopeId)
    return entry ? messageOf(entry.record) : null
  }

  /**
   * Returns the sent messages, newest first.
   * @example const lately = sentLogOf(peer).list({ to: ben, limit: 10 })
   */
  list({ to, limit = Infinity }: SentFilter = {}): SentMessage[] {
    const found = [...this.#entries.values()].map(({ record }) => record).reverse()
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
    const found = await askBroker(this.#ports, envelopeIds)
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
    const terms = postTermsOf(to, { ...options, receipts }, note)
    return this.#ports.tell((engine) => {
      const entry = this.#record({
        ...{ to: engine.users.current(to), bodyBytes: body.length, asksConfirmation: confirm !== undefined },
        asksReceipts: receipts !== 'none',
        contentHash: contentHash(body, options.attachment ?? null),
      })
      engine.enqueue({
        ...{ ...terms, body },
        sealed: (envelopeId) => this.#isSealed(entry, envelopeId),
        kept: (outboxNo) => {
          if (outboxNo > 0) this.#put(entry, { outboxNo })
          told.kept?.(outboxNo)
        },
        accepted: (receipt) => {
          this.#accepted(entry, receipt)
          told.accepted?.(receipt)
        },
        refused: (error) => {
          this.#refused(entry, error)
          told.refused?.(error)
        },
      })
      return entry
    })
  }

  #record(facts: Pick<SentRecord, 'to' | 'bodyBytes' | 'asksReceipts' | 'asksConfirmation' | 'contentHash'>): Entry {
    this.#lastNo += 1
    const atMs = Date.now()
    const state = { state: 'sending', isSigned: false, reason: '', signer: null, sentAtMs: atMs, atMs } as const
    const named = { ...facts, user: facts.to, deviceLabel: null }
    const record: SentRecord = { kind: 'sent', no: this.#lastNo, outboxNo: 0, envelopeId: null, ...named, ...state }
    const entry = this.#adopt(record)
    this.#keep(entry)
    if (this.#entries.size > KEPT_MAX) this.#forgetOldest()
    return entry
  }

  #isSealed(entry: Entry, envelopeId: EnvelopeId): void {
    this.#sealed.set(envelopeId, entry)
    this.#put(entry, { envelopeId })
  }

  #accepted(entry: Entry, { envelopeId, ackedAtMs }: Receipt): void {
    if (entry.record.envelopeId === null) this.#isSealed(entry, envelopeId)
    this.#put(entry, this.#userOf(entry.record.to)) // the recipient's statements came with its key
    this.#report(entry, { state: 'stored', atMs: Math.floor(ackedAtMs) })
  }

  #refused(entry: Entry, error: SealpostError): void {
    if (error.code === 'maybe_sent') this.#put(entry, { reason: error.code })
    else if (error.code !== 'kept_for_later' && error.code !== 'closed')
      this.#report(entry, { state: 'refused', atMs: Date.now(), reason: error.code })
    for (const { failed } of entry.waiters) failed(error)
    entry.waiters.clear()
  }

  #observe(event: PeerEvent): void {
    if (event.type === 'receipt') return this.#receipted(event)
    if (event.type === 'closed') return this.#closed(event.error)
    if (event.type !== 'sent' && event.type !== 'send_failed') return
    const entry = [...this.#entries.values()].find(({ record }) => record.outboxNo === event.outboxNo)
    if (!entry) return
    if (event.type === 'sent') this.#accepted(entry, event.receipt)
    else this.#refused(entry, event.error)
  }

  #receipted({ envelopeId, event, atMs }: DeliveryReceipt): void {
    const entry = this.#sealed.get(envelopeId)
    if (entry) this.#report(entry, { state: event, atMs })
  }

  #learn({ envelopeId, status, death, diedAtMs }: MessageWhereabouts): void {
    const entry = this.#sealed.get(envelopeId)
    if (!entry) return
    if (status === 'pushed') this.#report(entry, { state: 'pushed', atMs: Date.now() })
    if (death !== null)
      this.#report(entry, { state: death === 'strikes' ? 'struck_out' : death, atMs: diedAtMs ?? Date.now() })
  }

  /** Returns why a confirmation is not valid. One for a message that the log has forgotten is dropped. */
  #confirmed(message: Message): string | null {
    const said = readConfirmation(message.body)
    if (!said) return 'confirmation_forged'
    const entry = this.#sealed.get(said.envelopeId)
    if (!entry) return null
    const { to, contentHash: hash } = entry.record
    const isOurs = said.meshId === this.#ports.meshId && this.#isSameUser(said.sender, this.#ports.self)
    const isTheirs = said.recipient === message.sender && this.#isSameUser(said.recipient, to)
    if (!isOurs || !isTheirs || said.contentHash !== hash) return 'confirmation_foreign'
    const { outcome, reason, atMs } = said
    this.#report(entry, { state: stateOfOutcome(outcome), atMs, reason, signer: message.sender })
    return null
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
    this.#put(entry, change)
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
    for (const { waiters } of this.#entries.values()) {
      for (const { failed } of waiters) failed(error ?? new SealpostError('closed', 'This peer was closed.'))
      waiters.clear()
    }
  }

  #put(entry: Entry, change: Partial<SentRecord>): void {
    entry.record = { ...entry.record, ...change }
    this.#keep(entry)
  }

  #keep(entry: Entry): void {
    const { no } = entry.record
    this.#ports.tell(({ writer }) => writer?.put(keyOf(no), () => entry.record))
  }

  #forgetOldest(): void {
    const [no, { record }] = this.#entries.entries().next().value!
    this.#entries.delete(no)
    if (record.envelopeId !== null) this.#sealed.delete(record.envelopeId)
    this.#ports.tell(({ writer }) => writer?.remove(keyOf(no)))
  }

  /** Waits for an entry to reach the goal. */
  #within(
    { goal, timeoutMs }: { goal: WaitGoal; timeoutMs: Millis },
    start: (refused: Waiter['failed']) => Entry,
  ): Promise<SentMessage> {
    return new Promise((resolve, reject) => {
      let timer: ReturnType<typeof setTimeout> | undefined
      const reached = (sent: SentMessage) => {
        clearTimeout(timer)
        resolve(sent)
      }
      const failed = (error: SealpostError) => {
        clearTimeout(timer)
        reject(error)
      }
      const waiter: Waiter = { goal, reached, failed }
      const entry = start(failed)
      entry.waiters.add(waiter)
      this.#wake(entry)
      if (timeoutMs >= TIMER_MAX_MS) return
      timer = setTimeout(() => {
        entry.waiters.delete(waiter)
        reject(timedOut(entry.record))
      }, timeoutMs)
    })
  }
}

/** Timers accept at most 2^31 - 1 ms. */
const TIMER_MAX_MS = 2 ** 31

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

function messageOf({ kind: _, no: __, outboxNo: ___, contentHash: ____, ...sent }: SentRecord): SentMessage {
  return sent
}

const keyOf = (no: number): string => `sent ${no}`

const unknown = () => new SealpostError('message_unknown', 'The log has no sent message with this envelope id.')

const ENDS = {
  rejected: ['message_rejected', 'The recipient rejected the message'],
  expired: ['message_expired', 'The message expired before the recipient settled it'],
  struck_out: ['message_struck_out', 'The message failed too often at the recipient and is now a dead letter'],
} as const

/** Returns the error for a message that will not reach the awaited state. A confirmation may follow a settle. */
function endError({ state, reason }: SentMessage): SealpostError | null {
  if (state !== 'rejected' && state !== 'expired' && state !== 'struck_out') return null
  const [code, sentence] = ENDS[state]
  return new SealpostError(code, `${sentence}${reason === '' ? '' : `: ${reason}`}.`)
}

function timedOut({ state }: SentMessage): SealpostError {
  const settled = 'The broker reports that the message was settled, but the recipient has not confirmed it in time.'
  const sentence = state === 'settled' ? settled : `The message has not reached this state in time; it is ${state}.`
  return new SealpostError('timeout', `${sentence} Don't send it again.`)
}
