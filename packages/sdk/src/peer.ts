/** A peer as its application has it: everything it may ask, and the promises that answer. */
import type { BoxKeys, Identity } from '@sealpost/identity'
import type { Form } from '@sealpost/protocol'
import type { EnvelopeId, InviteId, MeshId, Millis, PeerKey } from '@sealpost/std'
import { certificateUntrusted } from './connection/addresses.ts'
import { clockMs, type LoadedStore, PeerDriver } from './driver.ts'
import { SealpostError } from './errors.ts'
import { Groups } from './groups/groups.ts'
import { Dispatcher, type MessageHandler } from './inbox/dispatcher.ts'
import { bytesOf, type Message } from './inbox/message.ts'
import type { KnownKey } from './keys/key-directory.ts'
import { type KeyEpochs, type OwnKeys, rotateBoxKey, rotateIdentity } from './keys/key-epochs.ts'
import { postTermsOf, type Receipt, type SendOptions } from './outbox/lane.ts'
import { Pools } from './pools/pools.ts'
import type { CryptoPort, EphemeralMessage, PeerCounters, PeerEvent, PresenceEntry } from './ports.ts'
import { platformWebSocket, type WebSocketConstructor } from './ports.ts'
import { type Status, validateStatus } from './presence/presence-client.ts'
import {
  type ConsentState,
  type ConsentUpdate,
  listMembers,
  type MemberEntry,
  type RequestBroker,
  revoke,
  updateConsent,
} from './requests/requests.ts'
import type { PeerStore } from './stores/store.ts'
import { Users } from './users/users.ts'

/** What a peer is opened with. */
export interface ConnectOptions {
  /**
   * `wss://host[:port]`, or `ws://` for a broker of one's own machine. The path is `/v1/ws` unless it names another. Several
   * are brokers of one cluster: dialled in turn until one answers, which may send the peer to where its mesh is at home.
   */
  readonly url: string | readonly string[]
  /** The pinned key, from the invite or the operator; a server that can't prove it is refused. */
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly identity: Identity
  /** Box keys from before a rotation, and one that was to be published when a former life ended: for opening only. */
  readonly formerBoxKeys?: readonly BoxKeys[]
  /** Identity keys that this one has followed: mail that was sealed to them is opened, too. */
  readonly formerKeys?: readonly PeerKey[]
  /** Unacknowledged envelopes at a time. Default 64. */
  readonly window?: number
  /** Unsettled deliveries the broker may have pushed. Default 512. */
  readonly credit?: number
  /**
   * Whether the lease of a message continues while the promise of its handler, or the loop that has it, is at work: it may
   * take minutes then. One that never ends holds its message as long as its session lasts. Default true.
   */
  readonly autoExtend?: boolean
  /** Default `binary`; `json` is for people who read along. */
  readonly form?: Form
  /** Default: the platform's. */
  readonly webSocket?: WebSocketConstructor
  /**
   * Outbox and inbox of this peer beyond its process: from `openFileStore`, `openIndexedDbStore` or `MemoryStore`. What
   * was posted leaves in a later life if not in this one, and what was settled is not handed out again. The peer closes
   * it when it is over. Default: none, everything ends with the process.
   */
  readonly store?: PeerStore
  /**
   * The newest box key epochs seen, which a broker can't go back behind: from `openKeyEpochs` (`@sealpost/sdk/key-epochs`), for peers and spaces that
   * share them beyond this process. Default: `store` keeps them with the mail; without a store they end with the process.
   */
  readonly keyEpochs?: KeyEpochs
  /**
   * A message that its sender sealed longer ago is rejected as `too_old` and not handed out, by this machine's clock and the
   * sender's. It bounds what a broker can replay to a process that remembers nothing. Default: 31 days without a store,
   * a day more than the longest time to live of a broker by default, and `Infinity` with one. A message that this peer remembers
   * to have rejected for another reason is handed out when it is redriven, whatever its age: it was never settled.
   */
  readonly maxAgeSeconds?: number
  readonly onEvent?: (event: PeerEvent) => void
  /** Ends waiting for the first session. */
  readonly signal?: AbortSignal
}

export interface RequestOptions extends Omit<SendOptions, 'notBefore'> {
  /** From the call to the answer. Default 30 s. */
  readonly timeoutMs?: Millis
}

const REQUEST_TIMEOUT_MS = 30_000

/** A message that the outbox has taken. */
export interface Enqueued {
  /** Its number in the store, as later lives tell it in `sent` and `send_failed`; 0 without a store. */
  readonly outboxNo: number
  /** As `send` answers it. One who does not look at it need not fear its rejection. */
  readonly receipt: Promise<Receipt>
}

export class Peer implements AsyncDisposable, AsyncIterable<Message> {
  readonly key: PeerKey
  /** Resolves when this peer is over for good: with the error that ended it, or null after `close`. */
  readonly closed: Promise<SealpostError | null>
  /** Peers that are written to at once. */
  readonly groups: Groups
  /** People who have several devices, this one among them. */
  readonly users: Users
  /** Peers of whom one takes each message. */
  readonly pools: Pools
  readonly #driver: PeerDriver
  readonly #ownKeys: OwnKeys
  readonly #incoming: Dispatcher
  readonly #onEvent: ((event: PeerEvent) => void) | undefined
  readonly #ephemeralHandlers = new Set<(message: EphemeralMessage) => void>()
  readonly #presenceHandlers = new Set<(entry: PresenceEntry) => void>()
  readonly #addressCount: number
  /** Attempts in a row that ended at a certificate. */
  #untrusted = 0
  readonly #first = Promise.withResolvers<void>()
  readonly #ended = Promise.withResolvers<SealpostError | null>()
  readonly #ask: RequestBroker = (question) =>
    new Promise((answered, refused) => this.#driver.engine.requestBroker(question, { replied: answered, refused }))

  /** Use `connect` or `openPeer`. */
  constructor(options: ConnectOptions, crypto: CryptoPort & OwnKeys, store: LoadedStore | null = null) {
    const urls = typeof options.url === 'string' ? [options.url] : options.url
    this.#addressCount = urls.length
    this.#ownKeys = crypto
    const { identity, brokerKey, meshId, window, credit, keyEpochs, autoExtend = true } = options
    this.key = identity.signing.publicKey
    this.closed = this.#ended.promise
    this.#onEvent = options.onEvent
    this.#incoming = new Dispatcher({
      emit: (event) => this.#emit(event),
      hold: autoExtend ? (message) => this.#driver.engine.holdLease(message) : () => undefined,
    })
    this.#driver = new PeerDriver({
      form: options.form ?? 'binary',
      webSocket: options.webSocket ?? platformWebSocket(),
      crypto,
      engine: {
        urls,
        brokerKey,
        meshId,
        peerKey: this.key,
        ...(window === undefined ? {} : { window }),
        ...(credit === undefined ? {} : { credit }),
        ...(options.maxAgeSeconds === undefined ? {} : { maxAgeMs: options.maxAgeSeconds * 1000 }),
        ...(keyEpochs && { keyEpochs }),
      },
      store,
      deliver: (message) => this.#incoming.deliver(message),
      emit: (event) => this.#emit(event),
    })
    this.groups = new Groups({
      self: this.key,
      tell: (happened) => this.#driver.tell((engine) => happened(engine.groups)),
      ask: this.#ask,
    })
    this.users = new Users({
      self: this.key,
      url: () => this.#driver.engine.connection.publicUrl,
      brokerKey,
      keys: crypto.user,
      tell: (happened) => this.#driver.tell((engine) => happened(engine.users, clockMs())),
      ask: this.#ask,
      send: (to, body, sendOptions) => this.send(to, body, sendOptions),
    })
    this.pools = new Pools({
      self: this.key,
      tell: (happened) => this.#driver.tell((engine) => happened(engine.pools)),
      ask: this.#ask,
    })
  }

  /** The newest box key epochs that this peer has seen: give them to `openState`, so that a space goes back behind none. */
  get keyEpochs(): KeyEpochs {
    return this.#driver.engine.keyEpochs
  }

  /** Called by `connect` and `openPeer`. */
  start(): Promise<void> {
    this.#driver.start()
    return this.#first.promise
  }

  get isOnline(): boolean {
    return this.#driver.engine.state.name === 'live'
  }
  get counters(): Readonly<PeerCounters> {
    return this.#driver.engine.counters
  }
  /** Sends without an answer yet. */
  get pendingCount(): number {
    return this.#driver.engine.pendingCount
  }

  /**
   * Resolves when the broker has stored the message durably. Sends to one recipient at one priority are stored in the
   * order of the calls. While the broker is away they wait and are said again under the same id.
   *
   * The body is the SDK's until then: don't change it.
   * @throws SealpostError; `maybe_sent` when it may be stored and nobody will ask again
   */
  send(to: PeerKey, body: Uint8Array | string, options: SendOptions = {}): Promise<Receipt> {
    return new Promise((accepted, refused) => {
      // Field by field: copying what an object happens to have costs four times as much.
      const { priority, ttlSeconds, terms, note } = postTermsOf(to, options)
      this.#driver.engine.enqueue({ to, priority, ttlSeconds, terms, note, body: bytesOf(body), accepted, refused })
    })
  }

  /**
   * Resolves when the message is kept, before the broker has it: from then on it is sent in this life of the peer or in a
   * later one. Without a store it is kept in memory only, and resolves at once.
   * @throws SealpostError when it was not taken: `outbox_full`, `body_too_large`, `unknown_recipient`, `store_failed`, …
   */
  enqueue(to: PeerKey, body: Uint8Array | string, options: SendOptions = {}): Promise<Enqueued> {
    return new Promise((resolve, refused) => {
      const receipt = Promise.withResolvers<Receipt>()
      receipt.promise.catch(() => undefined) // told by the promise, to who looks at it
      this.#driver.engine.enqueue({
        ...postTermsOf(to, options),
        body: bytesOf(body),
        accepted: receipt.resolve,
        refused: (error) => {
          refused(error) // does nothing once it was kept
          receipt.reject(error)
        },
        kept: (outboxNo) => resolve({ outboxNo, receipt: receipt.promise }),
      })
    })
  }

  /**
   * Resolves with the answer of that peer, which is settled already, unless a file goes with it (`attachment`): settle that one when
   * you have saved the file. Until then its lease is extended. One that says it failed (`isError`) is an answer, too.
   * What comes after the timeout is a message like any other.
   * @throws SealpostError `timeout`; `no_responder` with `ifOnline`; as `send`
   */
  request(to: PeerKey, body: Uint8Array | string, options: RequestOptions = {}): Promise<Message> {
    return new Promise((answered, refused) => {
      const { timeoutMs = REQUEST_TIMEOUT_MS, ...asked } = options
      if (!(timeoutMs > 0)) throw new RangeError('timeoutMs is more than 0')
      const post = { ...postTermsOf(to, asked, { isRequest: true }), body: bytesOf(body) }
      this.#driver.tell((engine) => engine.requestPeer({ ...post, timeoutMs, replied: answered, refused }))
    })
  }

  /**
   * Says something to a peer that is there now, and to nobody else: progress, typing. Nothing of it is stored or said
   * again. Answers the id by which the event `ephemeral_lost` names it, should it reach nobody.
   * @throws SealpostError `body_too_large`
   */
  sendEphemeral(to: PeerKey, body: Uint8Array | string): EnvelopeId {
    const bytes = bytesOf(body)
    return this.#driver.tell((engine) => engine.sendEphemeral(to, bytes))
  }

  /** Calls the handler for each ephemeral message. Answers a function that takes it away again. */
  onEphemeral(handler: (message: EphemeralMessage) => void): () => void {
    return added(this.#ephemeralHandlers, handler)
  }

  /** What this peer says of itself, until it says something else. @throws SealpostError `summary_malformed` */
  setStatus(status: Status): void {
    this.#driver.engine.setStatus(validateStatus(status))
  }

  /**
   * Asks to be told who is online, and calls the handler for each that is and for every change. Answers a function that
   * takes it away; with the last one the telling ends.
   */
  watchPresence(handler: (entry: PresenceEntry) => void = () => undefined): () => void {
    const remove = added(this.#presenceHandlers, handler)
    this.#driver.engine.watchPresence(true)
    return () => {
      remove()
      this.#driver.engine.watchPresence(this.#presenceHandlers.size > 0)
    }
  }

  /** Those of whom `watchPresence` has told. Without a session all of them count as offline. */
  get presence(): ReadonlyMap<PeerKey, PresenceEntry> {
    return this.#driver.engine.presence
  }

  /**
   * Calls the handler for each message, in the order they were pushed. It does not wait for one call before the next: a
   * handler that returns a promise runs beside others, at most as many as `credit`. When it returns or resolves the
   * message is settled; when it throws the message is given back for a later attempt.
   *
   * There is one handler, the last one given. Answers a function that takes it away again.
   */
  onMessage(handler: MessageHandler): () => void {
    return this.#incoming.use(handler)
  }

  /**
   * One message after the other. It is settled when the next one is asked for, unless `settle` or `retry` was called.
   * Leaving the loop with `break` or an error gives an unsettled one back for another attempt.
   */
  [Symbol.asyncIterator](): AsyncIterator<Message, undefined> {
    return this.#incoming.iterate()
  }

  /** The peer's box key as its own signature vouches for it. */
  lookupKey(peer: PeerKey): Promise<KnownKey> {
    return new Promise((found, refused) => this.#driver.engine.lookup(peer, { found, refused }))
  }

  /** Who belongs to the mesh, by their keys: the broker's word, while keys and key bindings are each peer's own. */
  members(): Promise<readonly MemberEntry[]> {
    return listMembers(this.#ask)
  }

  /** From then on the invite lets nobody in; who came by it stays. @throws SealpostError `not_admin` */
  revokeInvite(inviteId: InviteId): Promise<void> {
    return revoke(this.#ask, { invites: [inviteId] })
  }

  /**
   * Ends a membership for good: the peer's session ends, and its key can't come back. Revoking oneself is leaving.
   * @throws SealpostError `not_admin`, `unknown_recipient`
   */
  revokeMember(peer: PeerKey): Promise<void> {
    return revoke(this.#ask, { members: [peer] })
  }

  /** Whom this peer takes mail from. The broker keeps to it, whether this peer is there or not. */
  consent(): Promise<ConsentState> {
    return updateConsent(this.#ask, {})
  }

  /**
   * From then on, as far as mail sent later goes. Writing to someone, or answering, allows nobody.
   * @throws SealpostError `unknown_recipient` for keys that were never members, and then the rest is done;
   *   `too_many_named`
   */
  updateConsent(update: ConsentUpdate): Promise<ConsentState> {
    return updateConsent(this.#ask, update)
  }

  /**
   * Publishes a new box key, and seals with it from then on; mail to the one before is still opened. Keep `next` where it
   * outlives this process before you call this, and the key before for as long as mail may be on its way to it.
   * @throws SealpostError `stale_epoch`, `key_refused`
   */
  rotateBoxKey(next: BoxKeys): Promise<void> {
    return rotateBoxKey(this.#ask, this.#ownKeys, next)
  }

  /**
   * Turns to another identity, for good: membership, name, role, consent, devices and waiting mail are its own from then
   * on, and this peer is closed. Keep `next` and the keys before where they outlive this process before you call this; then
   * connect with `next`, and with the former ones as `formerKeys` and `formerBoxKeys`. Its box key needs a higher epoch.
   * After a lost answer the former key is `auth_failed` when it was done.
   * @throws SealpostError `key_taken`, `key_refused`
   */
  async rotateIdentity(next: Identity): Promise<void> {
    await rotateIdentity(this.#ask, this.#ownKeys, next)
    await this.close()
  }

  /**
   * Says what was settled and ends. Await your sends first: one under way is rejected as `maybe_sent`, or with a store as
   * `kept_for_later`. Await your handlers, too: what they settle later is not kept, and comes again in the next life.
   */
  close(): Promise<void> {
    return this.#driver.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #emit(event: PeerEvent): void {
    if (event.type === 'connected') this.#first.resolve()
    if (event.type === 'disconnected') this.#lost(event.code, event.reason)
    if (event.type === 'closed') this.#end(event.error)
    const onEvent = this.#onEvent
    if (event.type === 'ephemeral') call(this.#ephemeralHandlers, event)
    if (event.type === 'presence') call(this.#presenceHandlers, event)
    // In a turn of its own: what the application throws must not end up inside the engine.
    if (onEvent) queueMicrotask(() => onEvent(event))
  }

  /** Who waits for the first session is told when no address of the application's has a certificate that is trusted. */
  #lost(code: string, reason = 'unknown'): void {
    this.#untrusted = code === 'certificate_untrusted' ? this.#untrusted + 1 : 0
    if (this.#untrusted < this.#addressCount) return
    this.#first.promise.catch(() => undefined) // nobody may wait for it
    this.#first.reject(certificateUntrusted(reason))
  }

  #end(error: SealpostError | null): void {
    this.#incoming.end(error)
    this.#ended.resolve(error)
    this.#first.promise.catch(() => undefined) // nobody waits for it once the first session began
    this.#first.reject(error ?? new SealpostError('closed', 'This peer was closed.'))
  }
}

/** The same handler may be given twice, and is then taken away twice. */
function added<T>(handlers: Set<(told: T) => void>, handler: (told: T) => void): () => void {
  const own = (told: T) => handler(told)
  handlers.add(own)
  return () => void handlers.delete(own)
}

/** In turns of their own: what the application throws must not end up inside the engine. */
function call<T>(handlers: ReadonlySet<(told: T) => void>, told: T): void {
  for (const handler of handlers) queueMicrotask(() => handler(told))
}
