/**
 * The public door: `connect` answers a `Peer` that sends, receives and comes back by itself. Runs in browsers, Node and
 * Bun.
 */
import { type Identity, normalizeAuthority, ready } from '@sealpost/identity'
import type { Form, Priority } from '@sealpost/protocol'
import type { MeshId, PeerKey } from '@sealpost/std'
import { Driver } from './driver.ts'
import { SealpostError } from './errors.ts'
import type { PeerCounters, PeerEvent } from './events.ts'
import type { InboxStore } from './inbox.ts'
import { Incoming, type MessageHandler } from './incoming.ts'
import type { KnownKey } from './key-directory.ts'
import type { Receipt } from './lane.ts'
import type { Message } from './message.ts'
import type { CryptoPort } from './ports.ts'
import { sodiumCrypto } from './sodium-crypto.ts'
import { socketUrl, type WebSocketConstructor } from './web-socket.ts'

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
  /** Keeps what was settled beyond this process, so that a restart does not see it again. Default: none. */
  readonly store?: InboxStore
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

/**
 * Resolves after the first session began; until then it dials again as often as it takes.
 * @throws SealpostError with a terminal code (`auth_failed`, `revoked`, `wrong_broker`, …) or `aborted`
 */
export async function connect(options: ConnectOptions): Promise<Peer> {
  await ready()
  const peer = new Peer(options, sodiumCrypto(options.identity, options.meshId))
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

  /** Use `connect`. */
  constructor(options: ConnectOptions, crypto: CryptoPort) {
    const { identity, brokerKey, meshId, window, credit, store } = options
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
        ...(store === undefined ? {} : { store }),
      },
      deliver: (message) => this.#incoming.deliver(message),
      announce: (event) => this.#announce(event),
    })
  }

  /** Called by `connect`. */
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
    const bytes = typeof body === 'string' ? encoder.encode(body) : body
    return new Promise((accepted, refused) => {
      if (!Number.isSafeInteger(ttlSeconds) || ttlSeconds < 0)
        throw new RangeError('ttlSeconds is a whole number of seconds')
      this.#driver.engine.post({ to, priority, ttlSeconds, body: bytes, accepted, refused })
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

  /** Says what was settled and ends. Await your sends first: one under way is rejected as `maybe_sent`. */
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

function platformWebSocket(): WebSocketConstructor {
  return WebSocket as unknown as WebSocketConstructor
}

function aborted(cause: unknown): SealpostError {
  return new SealpostError('aborted', 'Connecting was called off.', { cause })
}
