/**
 * Implements the engine of a peer, which makes its decisions and never waits. Its parts (outbox, receiver, key
 * directory and others) share one synchronous interface. Frames, socket events and the time arrive as calls, and
 * commands leave through `PeerEffects`. The engine uses no clock and no randomness, so a simulator can drive it.
 */
import type { ClientFrame, FrameOf, ServerFrame } from '@sealpost/protocol'
import type { EnvelopeId, Millis, PeerKey } from '@sealpost/std'
import type { KnownAddresses } from './connection/addresses.ts'
import { BrokerConnection, type ConnectionState, isRestoredSince } from './connection/connection.ts'
import { asStoreError, type SealpostCode, SealpostError } from './errors.ts'
import { GroupClient } from './groups/group-client.ts'
import type { Message } from './inbox/message.ts'
import { Receiver } from './inbox/receiver.ts'
import { KeyEpochs } from './keys/key-epochs.ts'
import { type KeyWaiter, PeerKeys } from './keys/peer-keys.ts'
import type { GroupMessage, Lane, OutgoingMessage } from './outbox/lane.ts'
import { Outbox } from './outbox/outbox.ts'
import { type Orphan, PersistentOutbox } from './outbox/persistent-outbox.ts'
import {
  type AddedPart,
  type AddedPartPorts,
  type ConnectionTarget,
  type CryptoPort,
  type EnginePart,
  newCounters,
  type PeerEffects,
  type PeerEvent,
  type PresenceEntry,
} from './ports.ts'
import { EphemeralClient, PresenceClient, type Status } from './presence/presence-client.ts'
import {
  type BrokerRequestOf,
  BrokerRequests,
  type BrokerRequestType,
  type PeerRequest,
  PeerRequests,
  type ReplyHandler,
} from './requests/requests.ts'
import type { SentHooks, StreamMemory } from './sent/hooks.ts'
import type { OutboxRecord } from './stores/records.ts'
import { type EngineStore, StoreWriter, seenStoreOf } from './stores/store.ts'
import { UserStatements } from './users/user-statements.ts'

export type { OpenVerdict } from './inbox/message.ts'
export type { CryptoPort, GroupCrypto, PeerEffects } from './ports.ts'
export type { EngineStore } from './stores/store.ts'

export interface PeerEngineOptions extends ConnectionTarget {
  readonly nowMs: Millis
  /** Returns a number in [0, 1). */
  readonly random: () => number
  /** The maximum number of unacknowledged envelopes. Default: 64. */
  readonly window?: number | undefined
  /** Maximum bytes of unacknowledged envelopes. Default: 1 MiB. */
  readonly windowBytes?: number
  /** The maximum number of messages that wait beyond the window. Default: 100,000. */
  readonly waitingMax?: number
  /** The maximum number of unsettled deliveries. Default: 512. */
  readonly credit?: number | undefined
  /** Older messages are rejected. Default: 31 days without a store, Infinity with one. */
  readonly maxAgeMs?: Millis | undefined
  /** Default: nothing outlives this engine. */
  readonly store?: EngineStore
  /** Default: those in the store. */
  readonly keyEpochs?: KeyEpochs | undefined
  /** Called when this peer's key binding is due for renewal. */
  readonly bindingDue?: () => void
}

/**
 * The minimum number of settles that are sent with other frames. Fewer wait for more, because a frame costs more than
 * the delay.
 */
const SETTLES_WITH_FRAMES = 16

export class PeerEngine {
  readonly #effects: PeerEffects
  readonly connection: BrokerConnection
  readonly outbox: Outbox
  #welcome: FrameOf<'welcome'> | null = null
  private readonly receiver: Receiver
  readonly #keys: PeerKeys
  readonly #brokerRequests = new BrokerRequests()
  readonly #peerRequests = new PeerRequests((peer) => this.users.current(peer))
  readonly #presence: PresenceClient
  readonly #ephemeral: EphemeralClient
  readonly groups: GroupClient
  readonly users: UserStatements
  readonly keyEpochs: KeyEpochs
  readonly hooks: SentHooks = {}
  /** The parts, in the order in which their frames are sent. */
  readonly #parts: EnginePart[]
  readonly #added: AddedPart[] = []
  readonly #addedPorts: AddedPartPorts
  readonly writer: StoreWriter | null
  #storeError: SealpostError | null = null
  #isEnding = false
  #nowMs: Millis
  readonly counters = newCounters()

  constructor(effects: PeerEffects, crypto: CryptoPort, options: PeerEngineOptions) {
    const { random, window = 64, windowBytes = 1024 * 1024, waitingMax = 100_000, credit = 512, maxAgeMs } = options
    const { counters } = this
    const emit = (event: PeerEvent) => effects.emit(event)
    const current = (peer: PeerKey) => this.users.current(peer)
    const flushSoon = () => effects.flushSoon()
    const requestBroker: PeerEngine['requestBroker'] = (question, handler) => this.requestBroker(question, handler)
    this.#effects = effects
    this.#nowMs = options.nowMs
    const { store } = options
    const writer = store ? new StoreWriter((changes) => store.write(changes)) : null
    this.writer = writer
    const seen = seenStoreOf(writer, store?.records)
    this.users = new UserStatements({ crypto: crypto.users, emit, seen })
    this.keyEpochs = options.keyEpochs ?? new KeyEpochs({ self: options.peerKey, ...seen })
    this.#keys = new PeerKeys({
      crypto,
      epochs: this.keyEpochs,
      self: options.peerKey,
      ownKeyMissing: (error) => this.#fail(error),
      bindingDue: options.bindingDue,
      ...{ current, emit, flushSoon },
      unlock: (peer) => this.#unlock(peer),
      refuse: (peer, error) => this.#refuse(peer, error),
    })
    const { opening, directory } = this.#keys
    const keyOf = (lane: Lane, nowMs: Millis) => this.#keys.keyFor(lane, nowMs)
    const keptPosts = writer && new PersistentOutbox(writer, options.nowMs)
    const hasLeft = (message: GroupMessage, peer: PeerKey) => this.groups.hasLeft(message, peer)
    const outboxLimits = { window, windowBytes, waitingMax }
    const { hooks } = this
    this.outbox = new Outbox({ crypto, random, keyOf, counters, hasLeft, keptPosts, hooks }, outboxLimits)
    const keeping = writer && store ? { writer, records: store.records } : undefined
    const isAnswer = (message: Message, inbox: StreamMemory) => {
      hooks.noted?.(message, inbox, emit)
      hooks.arrived?.(message, emit)
      return message.note?.isConfirmation || this.#peerRequests.take(message)
    }
    const enqueue = (reply: OutgoingMessage) => this.enqueue(reply)
    this.groups = new GroupClient({
      crypto: crypto.groups,
      self: options.peerKey,
      ask: requestBroker,
      post: enqueue,
      unlock: (sender) => this.receiver.unlock(sender, this.#nowMs),
      bodies: keptPosts?.bodies ?? null,
      ...{ current, emit, seen, hooks },
    })
    this.#addedPorts = {
      ...{ crypto, counters, random, emit, ask: requestBroker, seen, current, flushSoon },
      lookup: (peer, waiter) => this.lookup(peer, waiter),
    }
    const { opening: groups } = this.groups
    const { users } = this
    const worksForPools = () => this.#added.some(({ isPoolMember }) => isPoolMember)
    const takers = { isAnswer, hooks, worksForPools, post: enqueue }
    this.receiver = new Receiver({ opening, groups, users, effects, counters, maxAgeMs, credit, ...takers }, keeping)
    this.#ephemeral = new EphemeralClient({ crypto, keys: directory, opening, effects, counters })
    this.#presence = new PresenceClient((entry) => effects.emit({ type: 'presence', ...entry }))
    const { receiver, outbox } = this
    this.#parts = [receiver, this.#presence, this.#ephemeral, outbox, this.#keys, this.#brokerRequests]
    if (store) this.outbox.restore(store.records, (record, message) => this.#orphan(record, message))
    this.connection = this.#connectionOf(crypto, options)
  }

  #connectionOf(crypto: CryptoPort, options: PeerEngineOptions): BrokerConnection {
    const { random, credit = 512, store } = options
    const isOwed = () =>
      this.outbox.owedCount > 0 || this.#addedCount > 0 || this.#brokerRequests.isOpen || this.#keys.isOpen
    const ports = {
      ...{ effects: this.#effects, crypto, random, isOwed },
      live: (welcome: FrameOf<'welcome'>) => {
        crypto.limitPadding?.(welcome.envelopeBytesMax)
        this.#live(welcome)
      },
      learned: (known: KnownAddresses) => this.#learnedAddresses(known),
      lost: (code: SealpostCode | 'connection_lost', retryInMs: Millis) => this.#lost(code, retryInMs),
      ended: (error: SealpostError | null) => this.#ended(error),
    }
    const known = store?.records.find((record) => record.kind === 'addresses')
    return new BrokerConnection(ports, { ...options, known }, credit)
  }

  get state(): ConnectionState {
    return this.connection.state
  }
  /** Messages that are neither acknowledged nor refused. */
  get pendingCount(): number {
    return this.outbox.pendingCount + this.#addedCount
  }

  get #addedCount(): number {
    return this.#added.reduce((sum, { pendingCount }) => sum + pendingCount, 0)
  }

  /** Adds a part, which joins the current session immediately. */
  add<Part extends AddedPart>(create: (ports: AddedPartPorts) => Part): Part {
    const part = create(this.#addedPorts)
    this.#parts.push(part)
    this.#added.push(part)
    if (this.state.name === 'live') part.connected?.(this.#welcome!, this.#nowMs)
    return part
  }

  /** Advances the engine's monotonic clock. Call before the other methods. */
  advance(nowMs: Millis): void {
    if (nowMs > this.#nowMs) this.#nowMs = nowMs
  }

  start(): void {
    this.groups.restore()
    this.connection.start(this.#nowMs)
  }

  opened(dialNo: number): void {
    this.connection.opened(dialNo)
  }

  received(dialNo: number, frame: ServerFrame): void {
    const taken = this.connection.received(dialNo, frame, this.#nowMs)
    if (taken) this.#receivedLive(taken)
  }

  malformed(dialNo: number): void {
    this.connection.malformed(dialNo, this.#nowMs)
  }

  closed(dialNo: number, closeNumber: number): void {
    this.connection.closed(dialNo, closeNumber, this.#nowMs)
  }

  /** Call at `wakeAtMs`, or earlier. */
  tick(): void {
    this.connection.tick(this.#nowMs)
    this.outbox.expire(this.#nowMs)
    for (const part of this.#added) part.tick(this.#nowMs)
    this.#peerRequests.expire(this.#nowMs)
    this.receiver.tick(this.#nowMs)
    this.flush()
  }

  /** When `tick` must be called next; Infinity if nothing is scheduled. */
  get wakeAtMs(): Millis {
    if (this.state.name === 'closed') return Infinity
    let atMs = Math.min(this.connection.wakeAtMs, this.#peerRequests.wakeAtMs)
    for (const part of this.#parts) atMs = Math.min(atMs, part.wakeAtMs)
    return atMs
  }

  flush(): void {
    if (this.state.name === 'live') this.#transmit()
    this.writer?.flush()
  }

  storeWritten(): void {
    this.writer!.written()
    this.flush()
  }

  /** Ends the peer, because without a store it can no longer keep its promises. */
  storeFailed(cause: unknown): void {
    if (this.state.name === 'closed') return
    this.#storeError = asStoreError(cause)
    this.connection.close()
  }

  get isStoreIdle(): boolean {
    return this.writer?.isIdle !== false
  }

  /** Refuses more messages, so that the store becomes idle before `close`. */
  stopAccepting(): void {
    this.#isEnding = true
    this.flush()
  }

  #transmit(): void {
    const nowMs = this.#nowMs
    let count = 0
    for (const part of this.#parts) count += this.#transmitAll(part.takeFrames(nowMs))
    if (count === 0) return
    if (this.receiver.settlesWaiting >= SETTLES_WITH_FRAMES) this.#transmitAll(this.receiver.takeSettles())
    this.connection.sent(nowMs)
  }

  #transmitAll(frames: readonly ClientFrame[]): number {
    for (const frame of frames) this.#effects.transmit(frame)
    return frames.length
  }

  /** Accepts a message to send, and later calls one of its two handlers: immediately if the message is refused. */
  enqueue(given: OutgoingMessage): void {
    if (this.#isEnding || this.state.name === 'closed') return given.refused(this.#endError())
    const post = this.hooks.sending?.(given) ?? given
    const to = this.users.current(post.to)
    this.outbox.post(to === post.to ? post : { ...post, to }, this.#nowMs)
    this.#effects.flushSoon()
  }

  /** Waits for the reply to a message that another part sends. */
  beginRequest(request: PeerRequest): OutgoingMessage {
    return this.#peerRequests.begin(request, this.#nowMs)
  }

  /**
   * Sends to connected recipients only. Returns the id that `ephemeralFailed` will report. @throws SealpostError
   * `body_too_large`
   */
  sendEphemeral(to: PeerKey, body: Uint8Array): EnvelopeId {
    return this.#ephemeral.send(this.users.current(to), body, this.#nowMs)
  }

  /** Sends the status now and in each later session. */
  setStatus(status: Status): void {
    this.#presence.setStatus(status)
    this.#effects.flushSoon()
  }

  watchPresence(isWatching: boolean): void {
    this.#presence.watch(isWatching)
    this.#effects.flushSoon()
  }

  get presence(): ReadonlyMap<PeerKey, PresenceEntry> {
    return this.#presence.presence
  }

  /** Keeps extending the lease of a message while the application processes it. */
  holdLease(message: Message): void {
    this.receiver.hold(message)
  }

  /** Sends a request that the broker answers with one frame, and repeats it until the reply arrives. */
  requestBroker<Type extends BrokerRequestType>(question: BrokerRequestOf<Type>, handler: ReplyHandler<Type>): void {
    if (this.state.name === 'closed') return handler.refused(this.#endError())
    this.#brokerRequests.send(question, handler)
    this.#effects.flushSoon()
  }

  /** Looks up the peer's checked box key, in memory or in the broker's directory. */
  lookup(peer: PeerKey, waiter: KeyWaiter): void {
    if (this.state.name === 'closed') return waiter.refused(this.#endError())
    this.#keys.lookup(peer, waiter, this.#nowMs)
  }

  /** Sends what is pending about received messages, then closes the connection. */
  close(): void {
    this.flushReceived()
    this.connection.close()
  }

  #fail(error: SealpostError): void {
    this.flushReceived()
    this.connection.fail(error)
  }

  /** Also sends what is not due, such as extensions of messages in hand: for the others, no attempt counts. */
  flushReceived(): void {
    if (this.state.name === 'live') this.#transmitAll(this.receiver.takeFrames(Infinity))
  }

  #receivedLive(frame: ServerFrame): void {
    switch (frame.type) {
      case 'ack':
        this.outbox.acked(frame.items, this.#nowMs)
        if (this.outbox.isHeldUp) this.#effects.flushSoon()
        return this.#passToAdded(frame)
      case 'nack':
        this.outbox.nacked(frame.items, this.#nowMs)
        this.#passToAdded(frame)
        return this.#effects.flushSoon()
      case 'push':
        return this.receiver.pushed(frame.deliveries, this.#nowMs)
      case 'pushWith':
      case 'pushBody':
        return this.receiver.pushedWith(frame.deliveries, this.#nowMs)
      case 'receipts':
        return this.receiver.receipted(frame.items)
      case 'recovered':
        return this.#recovered(frame)
      case 'pushEphemeral':
        return this.#ephemeral.received(frame.items, this.#nowMs)
      case 'ephemeralFailed':
        return this.#ephemeral.failed(frame.items)
      case 'presence':
        return this.#presence.received(frame)
      case 'directory':
        return this.#keys.directory.answered(frame, this.#nowMs)
      case 'keyHistory':
        return this.#keys.directory.historyAnswered(frame, this.#nowMs)
      case 'rebound':
        return this.#keys.rebound(frame)
      case 'roster':
      case 'revoked':
      case 'consented':
      case 'bound':
      case 'groupSet':
      case 'deviceRemoved':
      case 'succeeded':
        return this.#brokerRequests.replied(frame)
      case 'groupList':
        return frame.ref === 0 ? this.groups.told(frame) : this.#brokerRequests.replied(frame)
      case 'deviceList':
        this.users.devicesPushed(frame)
        return frame.ref === 0 ? undefined : this.#brokerRequests.replied(frame)
      case 'successions':
        return this.users.rotationsPushed(frame)
      case 'goaway':
        return this.outbox.leaving()
      default:
        return this.#passToAdded(frame)
    }
  }

  #passToAdded(frame: ServerFrame): void {
    for (const part of this.#added) part.received(frame, this.#nowMs)
  }

  #live(welcome: FrameOf<'welcome'>): void {
    this.counters.sessions += 1
    this.groups.connected()
    const { epoch, incarnation } = welcome
    const isRestored = this.#welcome !== null && isRestoredSince(this.#welcome, welcome)
    this.#welcome = welcome
    if (isRestored) this.receiver.restored()
    const resent = isRestored ? this.#resendAcked() : 0
    for (const part of this.#parts) part.connected?.(welcome, this.#nowMs)
    const durability = welcome.durability === 'fsync' ? 'fsync' : 'degraded'
    this.#effects.emit({ type: 'connected', epoch, incarnation, durability })
    if (isRestored) this.#effects.emit({ type: 'restored', incarnation, resent })
    this.#effects.flushSoon()
  }

  #resendAcked(): number {
    return this.outbox.reoffer(
      ({ post: { to }, envelopeId }, error) => this.#effects.emit({ type: 'resend_failed', to, envelopeId, error }),
      this.#nowMs,
    )
  }

  #recovered({ lost, isAll }: FrameOf<'recovered'>): void {
    const mail = lost.map(({ envelopeId, sender, reason }) => ({ envelopeId, sender, reason }))
    this.#effects.emit({ type: 'recovered', isRecovered: mail.length === 0, lost: mail, isAll })
  }

  #learnedAddresses(known: KnownAddresses): void {
    this.writer?.put('addresses', () => ({ kind: 'addresses', ...known }))
    this.#effects.emit({ type: 'addresses', ...known })
    this.#effects.flushSoon()
  }

  #lost(code: SealpostCode | 'connection_lost', retryInMs: Millis): void {
    this.#disconnected()
    this.#effects.emit({ type: 'disconnected', code, retryInMs })
  }

  #ended(error: SealpostError | null): void {
    this.#disconnected()
    this.#peerRequests.close(this.#endError())
    for (const part of this.#parts) part.close?.(this.#endError())
    this.writer?.flush()
    this.#effects.emit({ type: 'closed', error: this.#storeError ?? error })
  }

  #disconnected(): void {
    for (const part of this.#parts) part.disconnected()
  }

  #unlock(peer: PeerKey): void {
    this.outbox.unlock(peer)
    this.receiver.unlock(peer, this.#nowMs)
    this.#ephemeral.unlock(peer, this.#nowMs)
  }

  #refuse(peer: PeerKey, error: SealpostError): void {
    if (error.code === 'unknown_recipient' && this.users.current(peer) !== peer)
      this.outbox.follow(peer, (post) => this.enqueue(post))
    this.outbox.refuse(peer, error)
    this.receiver.refuse(peer, this.#nowMs)
    this.#ephemeral.refuse(peer, error.code)
  }

  /** Returns handlers that turn outcomes into events, for a message for which no caller in this process waits. */
  #orphan({ terms: { to }, outboxNo }: OutboxRecord, message?: GroupMessage): Orphan {
    if (message) return this.groups.orphan(message, to, outboxNo)
    return {
      accepted: (receipt) => this.#effects.emit({ type: 'sent', to, outboxNo, receipt }),
      refused: (error) => {
        if (error.code !== 'kept_for_later') this.#effects.emit({ type: 'send_failed', to, outboxNo, error })
      },
    }
  }

  #endError(): SealpostError {
    const { state } = this
    const error = this.#storeError ?? (state.name === 'closed' ? state.error : null)
    return error ?? new SealpostError('closed', 'This peer was closed.')
  }
}
