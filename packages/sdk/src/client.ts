/**
 * The public door: `connect` answers a `Peer` that sends, receives and comes back by itself. Runs in browsers, Node and
 * Bun.
 */
import { type Identity, normalizeAuthority, ready } from '@sealpost/identity'
import type { Form, Priority } from '@sealpost/protocol'
import type { InviteId, MeshId, PeerKey } from '@sealpost/std'
import { Driver, type LoadedStore } from './driver.ts'
import { SealpostError } from './errors.ts'
import type { PeerCounters, PeerEvent } from './events.ts'
import { Incoming, type MessageHandler } from './incoming.ts'
import type { KnownKey } from './key-directory.ts'
import type { Receipt } from './lane.ts'
import { type Ask, listMembers, type MemberEntry, revoke } from './members.ts'
import type { Message } from './message.ts'
import type { CryptoPort } from './ports.ts'
import { sodiumCrypto } from './sodium-crypto.ts'
import { loadStore, type PeerStore } from './store.ts'
import { platformWebSocket, socketUrl, type WebSocketConstructor } from './web-socket.ts'

export interface ConnectOptions {
  /** `wss://host[:port]`, or `ws://` for a broker of one's own machine. The path is `/v1/ws` unless it names another. */
  readonly url: string
  /** The pinned key, from the invite or the operator; whoever can't prove it is refused. */
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly identity: Identity
  /** Unacknowledged envelopes at a time. Default 64. */
  readonly window?: number
  /** Unsettled deliveries the broker may have pushed. Default 512. */
  readonly credit?: number
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
  readonly onEvent?: (event: PeerEvent) => void
  /** Ends waiting for the first session. */
  readonly signal?: AbortSignal
}

export interface SendOptions {
  /** Default `next`. */
  readonly priority?: Priority
  /** Whole seconds the broker keeps it for an absent recipient. Default: the broker's own. */
  readonly ttlSeconds?: number
}

/** A message that the outbox has taken. */
export interface Posted {
  /** Its number in the store, as later lives tell it in `sent` and `send_failed`; 0 without a store. */
  readonly outboxNo: number
  /** As `send` answers it. One who does not look at it need not fear its rejection. */
  readonly receipt: Promise<Receipt>
}

/**
 * Answers as soon as its store is read, whether the broker can be reached or not: for a peer that posts while it is
 * offline. Whether it is let in, `closed` and the events tell.
 * @throws SealpostError `store_foreign`, `store_corrupt`, `store_failed`
 */
export async function openPeer(options: ConnectOptions): Promise<Peer> {
  const peer = await newPeer(options)
  void peer.start().catch(() => undefined) // told by `closed`
  return peer
}

async function newPeer(options: ConnectOptions): Promise<Peer> {
  await ready()
  const { store, identity, meshId } = options
  const loaded = store ? await load(store, { meshId, peerKey: identity.signing.publicKey }) : null
  return new Peer(options, sodiumCrypto(identity, meshId), loaded)
}

async function load(store: PeerStore, owner: Parameters<typeof loadStore>[1]): Promise<LoadedStore> {
  try {
    return { store, records: await loadStore(store, owner) }
  } catch (error) {
    await store.close().catch(() => undefined) // the first failure is the one to tell
    throw error
  }
}

/**
 * Resolves after the first session began; until then it dials again as often as it takes.
 * @throws SealpostError with a terminal code (`auth_failed`, `revoked`, `wrong_broker`, …), `aborted`, or as `openPeer`
 */
export async function connect(options: ConnectOptions): Promise<Peer> {
  const peer = await newPeer(options)
  const { signal } = options
  const abort = () => void peer.close()
  signal?.addEventListener('abort', abort)
  try {
    if (signal?.aborted) throw aborted(signal.reason)
    await peer.start()
    return peer
  } catch (error) {
    throw signal?.aborted ? aborted(signal.reason) : error
  } finally {
    signal?.removeEventListener('abort', abort)
  }
}

const encoder = new TextEncoder()

export class Peer implements AsyncDisposable, AsyncIterable<Message> {
  readonly key: PeerKey
  /** Resolves when this peer is over for good: with the error that ended it, or null after `close`. */
  readonly closed: Promise<SealpostError | null>
  readonly #driver: Driver
  readonly #incoming: Incoming
  readonly #onEvent: ((event: PeerEvent) => void) | undefined
  readonly #first = Promise.withResolvers<void>()
  readonly #ended = Promise.withResolvers<SealpostError | null>()
  readonly #ask: Ask = (question) =>
    new Promise((answered, refused) => this.#driver.engine.ask(question, { answered, refused }))

  /** Use `connect` or `openPeer`. */
  constructor(options: ConnectOptions, crypto: CryptoPort, store: LoadedStore | null = null) {
    const { identity, brokerKey, meshId, window, credit } = options
    this.key = identity.signing.publicKey
    this.closed = this.#ended.promise
    this.#onEvent = options.onEvent
    this.#incoming = new Incoming((event) => this.#announce(event))
    this.#driver = new Driver({
      url: socketUrl(options.url),
      form: options.form ?? 'binary',
      webSocket: options.webSocket ?? platformWebSocket(),
      crypto,
      engine: {
        authority: normalizeAuthority(options.url),
        brokerKey,
        meshId,
        peerKey: this.key,
        ...(window === undefined ? {} : { window }),
        ...(credit === undefined ? {} : { credit }),
      },
      store,
      deliver: (message) => this.#incoming.deliver(message),
      announce: (event) => this.#announce(event),
    })
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
    const { priority = 'next', ttlSeconds = 0 } = options
    return new Promise((accepted, refused) => {
      checkTtl(ttlSeconds)
      this.#driver.engine.post({ to, priority, ttlSeconds, body: bytesOf(body), accepted, refused })
    })
  }

  /**
   * Resolves when the message is kept, before the broker has it: from then on it is sent in this life of the peer or in a
   * later one. Without a store it is kept in memory only, and resolves at once.
   * @throws SealpostError when it was not taken: `outbox_full`, `body_too_large`, `unknown_recipient`, `store_failed`, …
   */
  post(to: PeerKey, body: Uint8Array | string, options: SendOptions = {}): Promise<Posted> {
    const { priority = 'next', ttlSeconds = 0 } = options
    return new Promise((resolve, refused) => {
      checkTtl(ttlSeconds)
      const receipt = Promise.withResolvers<Receipt>()
      receipt.promise.catch(() => undefined) // told by the promise, to who looks at it
      this.#driver.engine.post({
        to,
        priority,
        ttlSeconds,
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
  lookup(peer: PeerKey): Promise<KnownKey> {
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

  #announce(event: PeerEvent): void {
    if (event.type === 'connected') this.#first.resolve()
    if (event.type === 'closed') this.#end(event.error)
    const onEvent = this.#onEvent
    // In a turn of its own: what the application throws must not end up inside the engine.
    if (onEvent) queueMicrotask(() => onEvent(event))
  }

  #end(error: SealpostError | null): void {
    this.#incoming.end(error)
    this.#ended.resolve(error)
    this.#first.promise.catch(() => undefined) // nobody waits for it once the first session began
    this.#first.reject(error ?? new SealpostError('closed', 'This peer was closed.'))
  }
}

/** Milliseconds as in a `Receipt`: comparable between the processes of one machine. */
export { clockMs } from './driver.ts'

const bytesOf = (body: Uint8Array | string) => (typeof body === 'string' ? encoder.encode(body) : body)

function checkTtl(ttlSeconds: number): void {
  if (!Number.isSafeInteger(ttlSeconds) || ttlSeconds < 0)
    throw new RangeError('ttlSeconds is a whole number of seconds')
}

function aborted(cause: unknown): SealpostError {
  return new SealpostError('aborted', 'Connecting was called off.', { cause })
}
