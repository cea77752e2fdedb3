/** Implements the application's view of a peer. */
import type { BoxKeys, Identity, SigningKeys } from '@sealpost/identity'
import { binaryForm, type ClientForm } from '@sealpost/protocol'
import { type EnvelopeId, type InviteId, type MeshId, type Millis, type PeerKey, withResolvers } from '@sealpost/std'
import { certificateUntrusted } from './connection/certificate-errors.ts'
import { type LoadedStore, PeerDriver } from './driver.ts'
import type { PeerEngine } from './engine.ts'
import { SealpostError } from './errors.ts'
import { Dispatcher, type MessageHandler } from './inbox/dispatcher.ts'
import { bytesOf, type Message } from './inbox/message.ts'
import type { KnownKey } from './keys/key-directory.ts'
import { type KeyEpochs, type OwnKeys, rotateBoxKey, rotateIdentity } from './keys/key-epochs.ts'
import { type OutgoingMessage, postTermsOf, type Receipt, type SendOptions } from './outbox/lane.ts'
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
import type { StoreRecord } from './stores/records.ts'
import type { PeerStore } from './stores/store.ts'

export interface ConnectOptions {
  /**
   * `wss://host[:port]`, or `ws://` for a broker on the same machine. The path is `/v1/ws` unless the URL contains
   * another. Several URLs must belong to the same cluster. They are dialled in turn until one replies, which may
   * redirect the peer to the home of its mesh.
   */
  readonly url: string | readonly string[]
  /** The pinned key, from the invite or the operator. A server that can't prove it is refused. */
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly identity: Identity
  /**
   * Box keys for opening only: those from before a rotation, and a key that an earlier process was about to publish.
   */
  readonly formerBoxKeys?: readonly BoxKeys[]
  /** Former identity keys. Mail sealed to them is opened as well. */
  readonly formerKeys?: readonly PeerKey[]
  /**
   * Whether to pad envelopes, so that a broker sees only a bucket of sizes: 256 bytes for every short message, then the
   * lengths of Padmé, which add at most 1/16. Every recipient understands padding. Shared bodies of groups, pools and
   * users, and attachments, are not padded. Default: false.
   */
  readonly padding?: boolean
  /** The maximum number of unacknowledged envelopes. Default: 64. */
  readonly window?: number
  /** The maximum number of unsettled deliveries. Default: 512. */
  readonly credit?: number
  /**
   * Whether to extend the lease of a message while the application processes it, which may take minutes: until the
   * handler's promise settles, or until the loop requests the next message. A handler that never ends holds its message
   * until the session ends. Default: true.
   */
  readonly autoExtend?: boolean
  /** Default: the binary form. @internal */
  readonly form?: ClientForm
  /** Default: the platform's implementation. */
  readonly webSocket?: WebSocketConstructor
  /**
   * Stores this peer's outbox and inbox beyond its process. Create it with `openFileStore`, `openIndexedDbStore` or
   * `MemoryStore`. A later process sends what this one could not, and settled messages are not handed out again. The
   * peer closes the store when it ends. Default: none; everything is lost with the process.
   */
  readonly store?: PeerStore
  /**
   * The newest box key epochs that were seen, which protect against a rollback by the broker. Pass the result of
   * `openKeyEpochs` (`@sealpost/sdk/key-epochs`) to peers and spaces that share them beyond this process. By default,
   * they are saved in `store`; without a store, they are lost with the process.
   */
  readonly keyEpochs?: KeyEpochs
  /**
   * A message that was sealed longer ago, according to the clocks of this machine and the sender, is rejected as
   * `too_old` and not handed out. This limits what a broker can replay to a process that remembers nothing. Default:
   * with a store, `Infinity`; without one, 31 days, a day more than a broker's default maximum time to live. A message
   * that this peer remembers having rejected for another reason is handed out when it is redriven, regardless of its
   * age, because it was never settled.
   */
  readonly maxAgeSeconds?: number
  /** `forwardSecrecy()` (`@sealpost/sdk/forward`) seals with ratchets, and needs a `store`. Default: seals with box keys. */
  readonly secrecy?: Secrecy
  readonly onEvent?: (event: PeerEvent) => void
  /** Aborts waiting for the first session. */
  readonly signal?: AbortSignal
}

/** Changes how a peer seals, before it connects. `records`: those of its store; undefined if it has none. @throws SealpostError */
export type Secrecy = (peer: Peer, options: ConnectOptions, records: readonly StoreRecord[] | undefined) => void

export interface RequestOptions extends Omit<SendOptions, 'notBefore'> {
  /** The time limit from the call to the reply. Default: 30 s. */
  readonly timeoutMs?: Millis
}

/** The default time limit of requests to peers, groups and pools. @internal */
export const REQUEST_TIMEOUT_MS = 30_000

export interface Enqueued {
  /**
   * The message's number in the store, which the events `sent` and `send_failed` contain in later processes; 0 without
   * a store.
   */
  readonly outboxNo: number
  /** Settles like the promise of `send()`. Ignoring it never causes an unhandled rejection. */
  readonly receipt: Promise<Receipt>
}

/** The internals of a peer that `groupsOf`, `poolsOf` and `usersOf` use. @internal */
export interface PeerPorts {
  readonly self: PeerKey
  readonly meshId: MeshId
  readonly brokerKey: PeerKey
  readonly signing: SigningKeys
  readonly crypto: CryptoPort & OwnKeys
  readonly tell: <T>(happened: (engine: PeerEngine) => T) => T
  readonly ask: RequestBroker
  /** Called with each event, before the application. */
  readonly observers: Set<(event: PeerEvent) => void>
  /** The records that earlier processes stored. */
  readonly records: readonly StoreRecord[]
}

const BINDING_CHECK_MS = 7 * 86_400_000

const allPorts = new WeakMap<Peer, PeerPorts>()

/** Returns the internals, which contain the identity key and thus are in no property of a peer. @internal */
export const portsOf = (peer: Peer): PeerPorts => allPorts.get(peer)!

/** Returns a function that makes an addition to each peer once. @internal */
export function oncePerPeer<T extends object>(make: (ports: PeerPorts) => T): (peer: Peer) => T {
  const made = new WeakMap<Peer, T>()
  return (peer) => {
    const addition = made.get(peer) ?? make(portsOf(peer))
    made.set(peer, addition)
    return addition
  }
}

/**
 * A peer of a mesh. Functions of other entries add to it: `groupsOf` (`@sealpost/sdk/groups`), `poolsOf`
 * (`@sealpost/sdk/pools`) and `usersOf` (`@sealpost/sdk/users`).
 */
export class Peer implements AsyncDisposable, AsyncIterable<Message> {
  readonly key: PeerKey
  /** Resolves when this peer has ended permanently: with the error that ended it, or null after `close`. */
  readonly closed: Promise<SealpostError | null>
  readonly #driver: PeerDriver
  readonly #ownKeys: OwnKeys
  readonly #incoming: Dispatcher
  readonly #onEvent: ((event: PeerEvent) => void) | undefined
  readonly #observers = new Set<(event: PeerEvent) => void>()
  readonly #ephemeralHandlers = new Set<(message: EphemeralMessage) => void>()
  readonly #presenceHandlers = new Set<(entry: PresenceEntry) => void>()
  readonly #addressCount: number
  /** The number of consecutive attempts that failed because of a certificate. */
  #untrusted = 0
  readonly #first = withResolvers<void>()
  readonly #ended = withResolvers<SealpostError | null>()
  readonly #ask: RequestBroker = (question) =>
    new Promise((answered, refused) => this.#driver.engine.requestBroker(question, { replied: answered, refused }))

  /** Use `connect` or `openPeer`. @internal */
  constructor(options: ConnectOptions, crypto: CryptoPort & OwnKeys, store: LoadedStore | null = null) {
    const urls = typeof options.url === 'string' ? [options.url] : options.url
    this.#addressCount = urls.length
    this.#ownKeys = crypto
    const { identity, brokerKey, meshId, window, credit, keyEpochs, maxAgeSeconds, autoExtend = true } = options
    this.key = identity.signing.publicKey
    this.closed = this.#ended.promise
    this.#onEvent = options.onEvent
    this.#incoming = new Dispatcher({
      emit: (event) => this.#emit(event),
      hold: autoExtend ? (message) => this.#driver.engine.holdLease(message) : () => undefined,
    })
    this.#driver = new PeerDriver({
      form: options.form ?? binaryForm,
      webSocket: options.webSocket ?? platformWebSocket(),
      crypto,
      engine: {
        urls,
        brokerKey,
        meshId,
        peerKey: this.key,
        ...{ window, credit, keyEpochs },
        maxAgeMs: maxAgeSeconds && maxAgeSeconds * 1000,
        bindingDue: () => void this.rotateBoxKey(crypto.current).catch(() => undefined), // the next session tries again
      },
      store,
      deliver: (message) => this.#incoming.deliver(message),
      emit: (event) => this.#emit(event),
    })
    const { signing } = identity
    const tell: PeerPorts['tell'] = (happened) => this.#driver.tell(happened)
    const records = store?.records ?? []
    const own = { self: this.key, meshId, brokerKey, signing, crypto, tell, records, observers: this.#observers }
    allPorts.set(this, { ...own, ask: this.#ask })
  }

  /**
   * The newest box key epochs that this peer has seen. Pass them to `openState`, so that a space can't be rolled back
   * to older epochs.
   * @example const state = await openState({ ...place, keyEpochs: peer.keyEpochs })
   */
  get keyEpochs(): KeyEpochs {
    return this.#driver.engine.keyEpochs
  }

  /** Use `connect` or `openPeer` instead. @internal */
  start(): Promise<void> {
    this.#driver.start()
    // A connection may outlive the key binding, so its expiry is checked in between.
    const timer = setInterval(() => void this.lookupKey(this.key).catch(() => undefined), BINDING_CHECK_MS)
    void this.closed.then(() => clearInterval(timer))
    return this.#first.promise
  }

  get isOnline(): boolean {
    return this.#driver.engine.state.name === 'live'
  }
  get counters(): Readonly<PeerCounters> {
    return this.#driver.engine.counters
  }
  /** The number of sends without a final reply. */
  get pendingCount(): number {
    return this.#driver.engine.pendingCount
  }

  /**
   * Resolves when the broker has stored the message durably. Messages to one recipient at one priority are stored in
   * the order of the calls. While the broker is unreachable, they wait, and are resent under the same id.
   *
   * The SDK owns the body until then: don't change it.
   * @throws SealpostError; `maybe_sent` if the message may be stored and will not be resent
   * @example await peer.send(ben, 'Are you there?', { priority: 'now', ttlSeconds: 3600 })
   */
  send(to: PeerKey, body: Uint8Array | string, options: SendOptions = {}): Promise<Receipt> {
    return new Promise((accepted, refused) => {
      const { priority, ttlSeconds, terms, note } = postTermsOf(to, options)
      this.#driver.engine.enqueue({ to, priority, ttlSeconds, terms, note, body: bytesOf(body), accepted, refused })
    })
  }

  /**
   * Resolves when the message is stored locally, before the broker has it. From then on, this process or a later one
   * sends it. Without a store, the message is only in memory, and the promise resolves immediately.
   * @throws SealpostError if it was not accepted: `outbox_full`, `body_too_large`, `unknown_recipient`, `store_failed`,
   * …
   * @example const { receipt } = await peer.enqueue(ben, 'written on a train')
   */
  enqueue(to: PeerKey, body: Uint8Array | string, options: SendOptions = {}): Promise<Enqueued> {
    return enqueuedBy((reports) =>
      this.#driver.engine.enqueue({ ...postTermsOf(to, options), body: bytesOf(body), ...reports }),
    )
  }

  /**
   * Sends a request, and resolves with that peer's reply. The reply is already settled, unless it has an `attachment`:
   * settle it when you have saved the file. Until then, the lease of the reply is extended. The promise also resolves
   * with a reply that reports failure (`isError`). A reply after the timeout arrives as an ordinary message.
   * @throws SealpostError `timeout`, `no_responder` with `ifOnline`, and the errors of `send`
   * @example const answer = await peer.request(ben, 'a question', { timeoutMs: 60_000 })
   */
  request(to: PeerKey, body: Uint8Array | string, options: RequestOptions = {}): Promise<Message> {
    return new Promise((answered, refused) => {
      const { timeoutMs = REQUEST_TIMEOUT_MS, ...asked } = options
      if (!(timeoutMs > 0)) throw new RangeError('timeoutMs must be greater than 0')
      const post = { ...postTermsOf(to, asked, { isRequest: true }), body: bytesOf(body) }
      this.#driver.tell((engine) =>
        engine.enqueue(engine.beginRequest({ ...post, timeoutMs, replied: answered, refused })),
      )
    })
  }

  /**
   * Sends an ephemeral message, such as progress or typing, to a peer that is connected now. The message is neither
   * stored nor resent. Returns its id, which the event `ephemeral_lost` contains if nobody received it.
   * @throws SealpostError `body_too_large`
   * @example peer.sendEphemeral(ben, 'half done')
   */
  sendEphemeral(to: PeerKey, body: Uint8Array | string): EnvelopeId {
    const bytes = bytesOf(body)
    return this.#driver.tell((engine) => engine.sendEphemeral(to, bytes))
  }

  /**
   * Calls the handler for each ephemeral message. Returns an unsubscribe function.
   * @example const stop = peer.onEphemeral(({ body }) => console.log(body.length))
   */
  onEphemeral(handler: (message: EphemeralMessage) => void): () => void {
    return addHandler(this.#ephemeralHandlers, handler)
  }

  /**
   * Sets this peer's status until the next call. @throws SealpostError `summary_malformed`
   * @example peer.setStatus({ availability: 'working', summary: 'reading the diff' })
   */
  setStatus(status: Status): void {
    this.#driver.engine.setStatus(validateStatus(status))
  }

  /**
   * Subscribes to presence: calls the handler for each peer that is online and for every change. Returns an unsubscribe
   * function; updates stop with the last subscriber.
   * @example const stop = peer.watchPresence(({ peer, isOnline }) => console.log(peer, isOnline))
   */
  watchPresence(handler: (entry: PresenceEntry) => void = () => undefined): () => void {
    const remove = addHandler(this.#presenceHandlers, handler)
    this.#driver.engine.watchPresence(true)
    return () => {
      remove()
      this.#driver.engine.watchPresence(this.#presenceHandlers.size > 0)
    }
  }

  /**
   * The peers that `watchPresence` reported. Without a session, all of them count as offline.
   * @example const isOnline = peer.presence.get(ben)?.isOnline ?? false
   */
  get presence(): ReadonlyMap<PeerKey, PresenceEntry> {
    return this.#driver.engine.presence
  }

  /**
   * Calls the handler for each message, in the order of the pushes. Calls overlap: handlers that return a promise run
   * concurrently, up to `credit` at a time. When a handler returns or its promise resolves, the message is settled.
   * When it throws, the message returns to the queue for another attempt.
   *
   * There is only one handler: the last one that was set. Returns a function that removes it.
   * @example const stop = peer.onMessage((message) => console.log(message.text()))
   */
  onMessage(handler: MessageHandler): () => void {
    return this.#incoming.use(handler)
  }

  /**
   * Yields one message after another. A message is settled when the next message is requested, unless `settle` or
   * `retry` was called. Leaving the loop with `break` or an error returns an unsettled message to the queue.
   * @example for await (const message of peer) console.log(message.text())
   */
  [Symbol.asyncIterator](): AsyncIterator<Message, undefined> {
    return this.#incoming.iterate()
  }

  /**
   * Returns the peer's box key, verified by its own signature.
   * @example const { boxEpoch } = await peer.lookupKey(ben)
   */
  lookupKey(peer: PeerKey): Promise<KnownKey> {
    return new Promise((found, refused) => this.#driver.engine.lookup(peer, { found, refused }))
  }

  /**
   * Lists the members of the mesh in key order. The broker reports the list; each peer signs its own key binding.
   * @example const names = (await peer.members()).map(({ name }) => name)
   */
  members(): Promise<readonly MemberEntry[]> {
    return listMembers(this.#ask)
  }

  /**
   * Revokes an invite. Members that joined with it stay. @throws SealpostError `not_admin`
   * @example await peer.revokeInvite(inviteId)
   */
  revokeInvite(inviteId: InviteId): Promise<void> {
    return revoke(this.#ask, { invites: [inviteId] })
  }

  /**
   * Ends a membership permanently: the peer's session ends, and its key can't join again. Revoke your own key to leave.
   * @throws SealpostError `not_admin`, `unknown_recipient`
   * @example await peer.revokeMember(ben)
   */
  revokeMember(peer: PeerKey): Promise<void> {
    return revoke(this.#ask, { members: [peer] })
  }

  /**
   * Returns which senders this peer accepts mail from. The broker enforces it even while this peer is offline.
   * @example const { policy } = await peer.consent()
   */
  consent(): Promise<ConsentState> {
    return updateConsent(this.#ask, {})
  }

  /**
   * Changes which senders this peer accepts mail from. Applies to mail that is sent afterwards. Sending or replying to
   * a peer does not allow that peer.
   * @throws SealpostError `unknown_recipient` if keys were never members (the rest is applied); `too_many_named`
   * @example await peer.updateConsent({ policy: 'contacts', allow: [ben] })
   */
  updateConsent(update: ConsentUpdate): Promise<ConsentState> {
    return updateConsent(this.#ask, update)
  }

  /**
   * Publishes a new box key, and seals with it from then on. Mail to the previous key is still opened. Before you call
   * this, save `next` where it outlives this process, and keep the previous key as long as mail to it may be on its
   * way.
   * @throws SealpostError `stale_epoch`, `key_refused`
   * @example await peer.rotateBoxKey(next) // store `next` first
   */
  rotateBoxKey(next: BoxKeys): Promise<void> {
    return rotateBoxKey(this.#ask, this.#ownKeys, next)
  }

  /**
   * Changes permanently to a new identity. It takes over the membership, name, role, consent, devices and waiting mail,
   * and this peer is closed. Before you call this, save `next` and the previous keys where they outlive this process.
   * Afterwards, connect with `next`, and with the previous keys as `formerKeys` and `formerBoxKeys`. The box key of
   * `next` needs a higher epoch. If the reply was lost, `auth_failed` for the former key means that the change was
   * made.
   * @throws SealpostError `key_taken`, `key_refused`
   * @example await peer.rotateIdentity(generateIdentity()) // store the new identity first
   */
  async rotateIdentity(next: Identity): Promise<void> {
    await rotateIdentity(this.#ask, this.#ownKeys, next)
    await this.close()
  }

  /**
   * Sends the waiting settles and ends the peer. Await your sends first: a pending one rejects with `maybe_sent` or,
   * with a store, `kept_for_later`. Await your handlers too: messages that they settle later are pushed again to the
   * next process.
   * @example await peer.close()
   */
  close(): Promise<void> {
    return this.#driver.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #emit(event: PeerEvent): void {
    for (const observe of this.#observers) observe(event)
    if (event.type === 'connected') this.#first.resolve()
    if (event.type === 'disconnected') this.#lost(event.code, event.reason)
    if (event.type === 'closed') this.#end(event.error)
    const onEvent = this.#onEvent
    if (event.type === 'ephemeral') callHandlers(this.#ephemeralHandlers, event)
    if (event.type === 'presence') callHandlers(this.#presenceHandlers, event)
    // A microtask keeps the application's exceptions out of the engine.
    if (onEvent) queueMicrotask(() => onEvent(event))
  }

  /** Rejects the wait for the first session if every address that the application gave has an untrusted certificate. */
  #lost(code: string, reason = 'unknown'): void {
    this.#untrusted = code === 'certificate_untrusted' ? this.#untrusted + 1 : 0
    if (this.#untrusted < this.#addressCount) return
    this.#first.promise.catch(() => undefined) // prevents an unhandled rejection
    this.#first.reject(certificateUntrusted(reason))
  }

  #end(error: SealpostError | null): void {
    this.#incoming.end(error)
    this.#ended.resolve(error)
    this.#first.promise.catch(() => undefined) // prevents an unhandled rejection
    this.#first.reject(error ?? new SealpostError('closed', 'This peer was closed.'))
  }
}

export type EnqueueReports = Required<Pick<OutgoingMessage, 'kept' | 'accepted' | 'refused'>>

/** Resolves when the message that `post` passes to the engine is stored locally. @internal */
export function enqueuedBy(post: (reports: EnqueueReports) => void): Promise<Enqueued> {
  return new Promise((resolve, refused) => {
    const receipt = withResolvers<Receipt>()
    receipt.promise.catch(() => undefined) // prevents an unhandled rejection
    post({
      accepted: receipt.resolve,
      refused: (error) => {
        refused(error) // has no effect once the message is stored
        receipt.reject(error)
      },
      kept: (outboxNo) => resolve({ outboxNo, receipt: receipt.promise }),
    })
  })
}

/** Adds a handler. Returns an unsubscribe function. @internal */
export function addHandler<T>(handlers: Set<(event: T) => void>, handler: (event: T) => void): () => void {
  const own = (event: T) => handler(event)
  handlers.add(own)
  return () => void handlers.delete(own)
}

/** Calls the handlers in microtasks, so that the application's exceptions can't propagate into the engine. @internal */
export function callHandlers<T>(handlers: ReadonlySet<(event: T) => void>, event: T): void {
  for (const handler of handlers) queueMicrotask(() => handler(event))
}
