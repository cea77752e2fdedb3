/**
 * A peer, all decisions and no waiting: connection, outbox, arrivals and key directory behind one synchronous surface.
 * Frames, socket events and the passing of time come in as calls, commands go out through `PeerEffects`. It reads no
 * clock and draws no random number of its own, so a simulator can drive it from a seed.
 */
import type { ClientFrame, FrameOf, ServerFrame } from '@sealpost/protocol'
import type { EnvelopeId, Millis, PeerKey } from '@sealpost/std'
import type { KnownAddresses } from './addresses.ts'
import { Arrivals } from './arrivals.ts'
import { Connection, type ConnectionState, isRestoredSince } from './connection.ts'
import { asStoreError, type SealpostCode, SealpostError } from './errors.ts'
import type { PeerCounters } from './events.ts'
import { GroupDesk } from './group-desk.ts'
import type { GroupMessage } from './group-message.ts'
import { Keeper } from './keeper.ts'
import { KeptPosts, type Orphan } from './kept-posts.ts'
import { type KeyEpochs, keptKeyEpochs } from './key-epochs.ts'
import type { Post } from './lane.ts'
import type { Message } from './message.ts'
import { Outbox } from './outbox.ts'
import { type KeyWaiter, PeerKeys } from './peer-keys.ts'
import { PersonDesk } from './person-desk.ts'
import { PoolDesk } from './pool-desk.ts'
import type { CryptoPort, PeerEffects, PeerPlace } from './ports.ts'
import { type Asker, type QuestionOf, Questions, type QuestionType } from './questions.ts'
import { type Request, Requests } from './requests.ts'
import { type PresenceEntry, Standing, type Status } from './standing.ts'
import type { OutboxRecord, StoreChange, StoreRecord } from './store.ts'
import { Whispers } from './whispers.ts'

export interface PeerEngineOptions extends PeerPlace {
  readonly nowMs: Millis
  /** A number in [0, 1). */
  readonly random: () => number
  /** Unacknowledged envelopes at a time. Default 64. */
  readonly window?: number
  /** The same in bytes. Default 1 MiB. */
  readonly windowBytes?: number
  /** Messages that wait beyond the window. Default 100,000. */
  readonly waitingMax?: number
  /** Unsettled deliveries the broker may have pushed. Default 512. */
  readonly credit?: number
  /** Older messages are rejected. Default: 31 days without a store, Infinity with one. */
  readonly maxAgeMs?: Millis
  /** Default: nothing outlives this engine. */
  readonly store?: EngineStore
  /** Default: those of the store. */
  readonly keyEpochs?: KeyEpochs
}

/** A store as the engine sees it: what was in it, and where changes go. */
export interface EngineStore {
  readonly records: readonly StoreRecord[]
  /** Answer: `kept` or `keepFailed`. No further one is asked for before. */
  keep(changes: StoreChange[]): void
}

export class PeerEngine {
  readonly #effects: PeerEffects
  readonly connection: Connection
  private readonly outbox: Outbox
  /** Of the last session. */
  #welcome: FrameOf<'welcome'> | null = null
  private readonly arrivals: Arrivals
  readonly #keys: PeerKeys
  readonly #questions = new Questions()
  readonly #requests = new Requests((peer) => this.persons.book.current(peer))
  readonly #standing: Standing
  readonly #whispers: Whispers
  readonly groups: GroupDesk
  readonly persons: PersonDesk
  readonly pools: PoolDesk
  readonly keyEpochs: KeyEpochs
  readonly #keeper: Keeper | null
  #storeError: SealpostError | null = null
  #isEnding = false
  #nowMs: Millis
  readonly counters: PeerCounters = {
    sent: 0,
    resent: 0,
    acked: 0,
    nacked: 0,
    received: 0,
    duplicates: 0,
    reordered: 0,
    tampered: 0,
    settled: 0,
    retried: 0,
    sessions: 0,
  }

  constructor(effects: PeerEffects, crypto: CryptoPort, options: PeerEngineOptions) {
    const { random, window = 64, windowBytes = 1024 * 1024, waitingMax = 100_000, credit = 512, maxAgeMs } = options
    const { counters } = this
    this.#effects = effects
    this.#nowMs = options.nowMs
    this.persons = new PersonDesk({
      crypto,
      self: options.peerKey,
      announce: (event) => effects.announce(event),
      ask: (question, asker) => this.ask(question, asker),
      post: (post) => this.post(post),
    })
    const { store } = options
    const keeper = store ? new Keeper((changes) => store.keep(changes)) : null
    this.#keeper = keeper
    this.keyEpochs = options.keyEpochs ?? keptKeyEpochs(options.peerKey, keeper, store?.records)
    this.#keys = new PeerKeys({
      crypto,
      epochs: this.keyEpochs,
      self: options.peerKey,
      ownKeyMissing: (error) => this.#fail(error),
      current: (peer) => this.persons.book.current(peer),
      announce: (event) => effects.announce(event),
      unlock: (peer) => this.#unlock(peer),
      refuse: (peer, error) => this.#refuse(peer, error),
      flushSoon: () => effects.flushSoon(),
    })
    const { opening, directory } = this.#keys
    const keyOf = (peer: PeerKey, nowMs: Millis) => directory.find(peer, nowMs)
    const keptPosts = keeper && new KeptPosts(keeper, options.nowMs)
    const hasLeft = (message: GroupMessage, peer: PeerKey) => this.groups.hasLeft(message, peer)
    const outboxLimits = { window, windowBytes, waitingMax }
    this.outbox = new Outbox({ crypto, random, keyOf, counters, hasLeft, keptPosts }, outboxLimits)
    const keeping = keeper && store ? { keeper, records: store.records } : undefined
    const isAnswer = (message: Message) => this.#requests.take(message)
    const post = (reply: Post) => this.post(reply)
    this.groups = new GroupDesk({
      crypto: crypto.groups,
      self: options.peerKey,
      announce: (event) => effects.announce(event),
      ask: (question, asker) => this.ask(question, asker),
      post,
      unlock: (sender) => this.arrivals.unlock(sender, this.#nowMs),
      bodies: keptPosts?.bodies ?? null,
      current: (peer) => this.persons.book.current(peer),
    })
    this.pools = new PoolDesk({
      ...{ crypto, counters, random },
      announce: (event) => effects.announce(event),
      ask: (question, asker) => this.ask(question, asker),
      lookup: (peer, waiter) => this.#keys.lookupCurrent(peer, waiter, (key, other) => this.lookup(key, other)),
      flushSoon: () => effects.flushSoon(),
    })
    const { opening: groups } = this.groups
    const { book: persons } = this.persons
    const worksForPools = () => this.pools.seats.isAny
    this.arrivals = new Arrivals(
      { opening, groups, persons, effects, counters, isAnswer, worksForPools, maxAgeMs, post, credit },
      keeping,
    )
    this.#whispers = new Whispers({ crypto, keys: directory, opening, effects, counters })
    this.#standing = new Standing((entry) => effects.announce({ type: 'presence', ...entry }))
    if (store) this.outbox.restore(store.records, (record, message) => this.#orphan(record, message))
    this.connection = new Connection(
      {
        effects,
        crypto,
        random,
        isOwed: () =>
          this.outbox.owedCount > 0 || this.pools.sends.pendingCount > 0 || this.#questions.isOpen || this.#keys.isOpen,
        live: (welcome) => this.#live(welcome),
        learned: (known) => this.#learnedAddresses(known),
        lost: (code, retryInMs) => this.#lost(code, retryInMs),
        ended: (error) => this.#ended(error),
      },
      { ...options, known: store?.records.find((record) => record.kind === 'addresses') },
      credit,
    )
  }

  get state(): ConnectionState {
    return this.connection.state
  }
  /** Sends without an answer. */
  get pendingCount(): number {
    return this.outbox.pendingCount + this.pools.sends.pendingCount
  }

  /** Tells the time. Call it before the other methods; a clock that goes back stands still here. */
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

  /** What came could not be decoded. */
  malformed(dialNo: number): void {
    this.connection.malformed(dialNo, this.#nowMs)
  }

  closed(dialNo: number, closeNumber: number): void {
    this.connection.closed(dialNo, closeNumber, this.#nowMs)
  }

  /** Call at `wakeAtMs`, or at any other time. */
  tick(): void {
    this.connection.tick(this.#nowMs)
    this.outbox.expire(this.#nowMs)
    this.pools.sends.expire(this.#nowMs)
    this.#requests.expire(this.#nowMs)
    this.arrivals.tick(this.#nowMs)
    this.flush()
  }

  /** The next time at which something is due without a cause from outside; Infinity for never. */
  get wakeAtMs(): Millis {
    if (this.state.name === 'closed') return Infinity
    const ownAtMs = Math.min(this.connection.wakeAtMs, this.outbox.wakeAtMs, this.#requests.wakeAtMs)
    if (this.state.name !== 'live') return Math.min(ownAtMs, this.pools.sends.wakeAtMs)
    return Math.min(
      ownAtMs,
      this.pools.wakeAtMs,
      this.#keys.directory.wakeAtMs,
      this.#questions.wakeAtMs,
      this.arrivals.wakeAtMs,
    )
  }

  /** Sends what there is to send. */
  flush(): void {
    if (this.state.name === 'live') this.#transmit()
    this.#keeper?.flush()
  }

  /** The store has kept what it was asked to. */
  kept(): void {
    this.#keeper!.kept()
    this.flush()
  }

  /** The store failed: nothing can be promised any more, so this peer ends. */
  keepFailed(cause: unknown): void {
    if (this.state.name === 'closed') return
    this.#storeError = asStoreError(cause)
    this.connection.close()
  }

  /** Nothing is asked of the store and nothing waits for it. */
  get isKept(): boolean {
    return this.#keeper?.isIdle !== false
  }

  /** Takes no further posts, so that the store can come to rest before `close`. */
  leave(): void {
    this.#isEnding = true
    this.flush()
  }

  #transmit(): void {
    const nowMs = this.#nowMs
    const count =
      this.#say(this.arrivals.takeFrames(nowMs)) +
      this.#say(this.#standing.takeFrames()) +
      this.#say(this.#whispers.takeFrames()) +
      this.#say(this.outbox.takeFrames(nowMs)) +
      this.#say(this.pools.takeFrames(nowMs)) +
      this.#say(this.#keys.directory.takeFrames(nowMs)) +
      this.#say(this.#questions.takeFrames(nowMs))
    if (count === 0) return
    this.#say(this.arrivals.takeSettles())
    this.connection.sent(nowMs)
  }

  #say(frames: readonly ClientFrame[]): number {
    for (const frame of frames) this.#effects.transmit(frame)
    return frames.length
  }

  /** Takes a message to be sent; one of its two answers is called, possibly at once when it is refused. */
  post(post: Post): void {
    if (this.#isEnding || this.state.name === 'closed') return post.refused(this.#endError())
    const to = this.persons.book.current(post.to)
    this.outbox.post(to === post.to ? post : { ...post, to })
    this.#effects.flushSoon()
  }

  /** Posts a message and waits for the answer of its recipient. */
  request(request: Request): void {
    this.post(this.#requests.begin(request, this.#nowMs))
  }

  /** To whoever is there to hear it; answers the id by which `unheard` names it. @throws SealpostError `body_too_large` */
  whisper(to: PeerKey, body: Uint8Array): EnvelopeId {
    return this.#whispers.say(this.persons.book.current(to), body, this.#nowMs)
  }

  /** Said to the broker now and in each session from here on. */
  setStatus(status: Status): void {
    this.#standing.say(status)
    this.#effects.flushSoon()
  }

  /** Whether to be told who is online. */
  watchPresence(isWatching: boolean): void {
    this.#standing.watch(isWatching)
    this.#effects.flushSoon()
  }

  get presence(): ReadonlyMap<PeerKey, PresenceEntry> {
    return this.#standing.presence
  }

  /** The application is at work on this message: its lease goes on for as long as that takes. */
  hold(message: Message): void {
    this.arrivals.hold(message)
  }

  /** Asks the broker what it answers with one frame; said again until it does. */
  ask<Type extends QuestionType>(question: QuestionOf<Type>, asker: Asker<Type>): void {
    if (this.state.name === 'closed') return asker.refused(this.#endError())
    this.#questions.ask(question, asker)
    this.#effects.flushSoon()
  }

  /** The peer's checked box key, from memory or from the broker's directory. */
  lookup(peer: PeerKey, waiter: KeyWaiter): void {
    if (this.state.name === 'closed') return waiter.refused(this.#endError())
    this.#keys.lookup(peer, waiter, this.#nowMs)
  }

  /** Says what was settled, then ends everything. */
  close(): void {
    this.sayEnds()
    this.connection.close()
  }

  #fail(error: SealpostError): void {
    this.sayEnds()
    this.connection.fail(error)
  }

  sayEnds(): void {
    const { arrivals, state } = this
    if (state.name === 'live') this.#say([...arrivals.takeFrames(this.#nowMs), ...arrivals.takeSettles()])
  }

  #receivedLive(frame: ServerFrame): void {
    switch (frame.type) {
      case 'ack':
        this.outbox.acked(frame.items, this.#nowMs)
        this.pools.received(frame, this.#nowMs)
        if (this.outbox.isHeldUp || this.pools.sends.pendingCount > 0) this.#effects.flushSoon()
        return
      case 'nack':
        this.outbox.nacked(frame.items, this.#nowMs)
        this.pools.received(frame, this.#nowMs)
        return this.#effects.flushSoon()
      case 'push':
        return this.arrivals.pushed(frame.deliveries, this.#nowMs)
      case 'pushWith':
      case 'pushBody':
        return this.arrivals.pushedWith(frame.deliveries, this.#nowMs)
      case 'receipts':
        return this.arrivals.receipted(frame.items)
      case 'recovered':
        return this.#recovered(frame)
      case 'whispered':
        return this.#whispers.heard(frame.items, this.#nowMs)
      case 'unheard':
        return this.#whispers.unheard(frame.items)
      case 'presence':
        return this.#standing.told(frame)
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
        return this.#questions.answered(frame)
      case 'poolJoined':
        return this.pools.received(frame, this.#nowMs)
      case 'groupList':
        return frame.ref === 0 ? this.groups.told(frame) : this.#questions.answered(frame)
      case 'deviceList':
        this.persons.book.told(frame)
        return frame.ref === 0 ? undefined : this.#questions.answered(frame)
      case 'successions':
        return this.persons.book.succeeded(frame)
      case 'goaway':
        return this.outbox.leaving()
      default:
        return
    }
  }

  #live(welcome: FrameOf<'welcome'>): void {
    this.counters.sessions += 1
    this.arrivals.connected(welcome)
    this.#standing.connected()
    this.#whispers.connected()
    this.groups.connected()
    this.pools.connected(welcome)
    const { epoch, incarnation } = welcome
    const isRestored = this.#welcome !== null && isRestoredSince(this.#welcome, welcome)
    this.#welcome = welcome
    if (isRestored) this.arrivals.restored()
    const reoffered = isRestored ? this.#reoffer() : 0
    this.outbox.connected(welcome, this.#nowMs)
    const durability = welcome.durability === 'fsync' ? 'fsync' : 'degraded'
    this.#effects.announce({ type: 'connected', epoch, incarnation, durability })
    if (isRestored) this.#effects.announce({ type: 'restored', incarnation, reoffered })
    this.#effects.flushSoon()
  }

  #reoffer(): number {
    return this.outbox.reoffer(
      ({ post: { to }, envelopeId }, error) =>
        this.#effects.announce({ type: 'reoffer_failed', to, envelopeId, error }),
      this.#nowMs,
    )
  }

  #recovered({ lost, isAll }: FrameOf<'recovered'>): void {
    const mail = lost.map(({ envelopeId, sender, reason }) => ({ envelopeId, sender, reason }))
    this.#effects.announce({ type: 'recovered', isRecovered: mail.length === 0, lost: mail, isAll })
  }

  #learnedAddresses(known: KnownAddresses): void {
    this.#keeper?.put('addresses', () => ({ kind: 'addresses', ...known }))
    this.#effects.announce({ type: 'addresses', ...known })
    this.#effects.flushSoon()
  }

  #lost(code: SealpostCode | 'connection_lost', retryInMs: Millis): void {
    this.#disconnected()
    this.#effects.announce({ type: 'disconnected', code, retryInMs })
  }

  #ended(error: SealpostError | null): void {
    this.#disconnected()
    this.#requests.close(this.#endError())
    this.outbox.close(this.#endError())
    this.pools.close(this.#endError())
    this.#keys.close(this.#endError())
    this.#questions.close(this.#endError())
    this.#keeper?.flush()
    this.#effects.announce({ type: 'closed', error: this.#storeError ?? error })
  }

  #disconnected(): void {
    this.outbox.disconnected()
    this.pools.disconnected()
    this.arrivals.disconnected()
    this.#standing.disconnected()
    this.#whispers.disconnected()
    this.#keys.disconnected()
    this.#questions.disconnected()
  }

  #unlock(peer: PeerKey): void {
    this.outbox.unlock(peer)
    this.arrivals.unlock(peer, this.#nowMs)
    this.#whispers.unlock(peer, this.#nowMs)
  }

  #refuse(peer: PeerKey, error: SealpostError): void {
    if (error.code === 'unknown_recipient' && this.persons.book.current(peer) !== peer)
      this.outbox.follow(peer, (post) => this.post(post))
    this.outbox.refuse(peer, error)
    this.arrivals.refuse(peer, this.#nowMs)
    this.#whispers.refuse(peer, error.code)
  }

  /** Nobody of this life waits for these: they are told as events. */
  #orphan({ terms: { to }, outboxNo }: OutboxRecord, message?: GroupMessage): Orphan {
    if (message) return this.groups.orphan(message, to, outboxNo)
    return {
      accepted: (receipt) => this.#effects.announce({ type: 'sent', to, outboxNo, receipt }),
      refused: (error) => {
        if (error.code !== 'kept_for_later') this.#effects.announce({ type: 'send_failed', to, outboxNo, error })
      },
    }
  }

  #endError(): SealpostError {
    const { state } = this
    const error = this.#storeError ?? (state.name === 'closed' ? state.error : null)
    return error ?? new SealpostError('closed', 'This peer was closed.')
  }
}
