/**
 * Implements the driver, the only asynchronous part of a peer. It executes the engine's commands on a WebSocket, with
 * the platform's clock and one timer. Requests that are made in the same turn of the event loop are sent together.
 */
import type { ClientForm, ClientFrame } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'
import { socketUrl, TLS_FAILED } from './connection/addresses.ts'
import { certificateErrorCode } from './connection/certificate-errors.ts'
import { PeerEngine, type PeerEngineOptions } from './engine.ts'
import type { Message } from './inbox/message.ts'
import type { CryptoPort, PeerEffects, PeerEvent, WebSocketConstructor, WebSocketLike } from './ports.ts'
import type { StoreRecord } from './stores/records.ts'
import type { PeerStore, StoreChange } from './stores/store.ts'

export interface PeerDriverOptions {
  readonly form: ClientForm
  readonly webSocket: WebSocketConstructor
  readonly crypto: CryptoPort
  readonly engine: Omit<PeerEngineOptions, 'nowMs' | 'random' | 'store'>
  /** The peer's store, which the driver closes when the peer ends. */
  readonly store: LoadedStore | null
  readonly deliver: (message: Message) => void
  readonly emit: (event: PeerEvent) => void
}

export interface LoadedStore {
  readonly store: PeerStore
  readonly records: readonly StoreRecord[]
}

/**
 * Returns milliseconds since 1970 with fractions, from a clock that does not jump. Processes on the same machine can
 * compare them.
 * @example const startedAtMs = clockMs()
 */
export const clockMs = (): Millis => ORIGIN_MS + performance.now()
const ORIGIN_MS = performance.timeOrigin

/** The longest timer. Timers accept at most 2^31 - 1 ms. */
const TIMER_MAX_MS = 3_600_000
const CLOSE_WITHIN_MS = 2_000
/** A flush waits for this many microtasks without a new request: `await` and `for await` take a few each. */
const QUIET_TURNS = 8
const TURNS_MAX = 256

const ignore = (): void => undefined

export class PeerDriver implements PeerEffects {
  readonly engine: PeerEngine
  /** The platform's certificate error from the last dial, or null. */
  #certificateError: string | null = null
  readonly #options: PeerDriverOptions
  private socket: WebSocketLike | null = null
  #isFlushDue = false
  #turns = 0
  #quietTurns = 0
  #isClosing = false
  #closed: Promise<void> | null = null
  #timer: ReturnType<typeof setTimeout> | undefined
  #timerAtMs: Millis = Infinity
  readonly #closing = new Set<WebSocketLike>()
  #whenClosed: (() => void) | null = null
  /** The store write in progress, which never rejects. */
  #writing: Promise<void> | null = null
  #released: Promise<void> | null = null
  #isStoreClosed = false

  constructor(options: PeerDriverOptions) {
    const { crypto, engine, store } = options
    this.#options = options
    const kept = store && {
      store: { records: store.records, write: (changes: StoreChange[]) => this.#keep(store.store, changes) },
    }
    this.engine = new PeerEngine(this, crypto, { ...engine, ...kept, nowMs: clockMs(), random: Math.random })
  }

  start(): void {
    this.tell(() => this.engine.start())
  }

  /**
   * Flushes and ends the peer. Resolves when the store and the socket are closed; waits at most two seconds for the
   * socket.
   */
  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    if (this.#options.store) await this.#comeToRest()
    if (this.engine.state.name === 'live' && this.engine.counters.settled > 0) await this.#settlesCommitted()
    this.tell(() => this.engine.close())
    if (this.#closing.size > 0) await this.#socketsGone()
    await this.#released
  }

  /** Waits until the settles are committed, but at most 2 s. Otherwise, another broker would push them again. */
  async #settlesCommitted(): Promise<void> {
    this.#isClosing = true
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, CLOSE_WITHIN_MS)
      const ponged = () => {
        clearTimeout(timer)
        resolve()
      }
      this.tell(() => {
        this.engine.flushReceived()
        this.engine.connection.ping(ponged)
      })
    })
  }

  async #socketsGone(): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, CLOSE_WITHIN_MS)
      this.#whenClosed = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  dial(dialNo: number, url: string): void {
    const { webSocket: WebSocket, form } = this.#options
    const socket = new WebSocket(socketUrl(url), [form.subprotocol])
    this.socket = socket
    this.#certificateError = null
    socket.binaryType = 'arraybuffer'
    socket.onopen = () => this.tell(() => this.engine.opened(dialNo))
    socket.onmessage = ({ data: wire }) => this.tell(() => this.#frameReceived(dialNo, wire))
    socket.onclose = ({ code }) => {
      this.tell(() => this.engine.closed(dialNo, this.#certificateError === null ? code : TLS_FAILED))
      this.#socketClosed(socket)
    }
    socket.onerror = (event: unknown) => {
      this.#certificateError = certificateErrorCode(event)
    }
  }

  closeSocket(_dialNo: number, code?: number): void {
    const { socket } = this
    if (!socket) return
    this.socket = null
    this.#closing.add(socket)
    socket.onopen = null
    socket.onmessage = null
    socket.onerror = ignore // `ws` for Node throws unhandled errors, such as for closing while it dials
    socket.onclose = () => this.#socketClosed(socket)
    socket.close(code)
  }

  transmit(frame: ClientFrame): void {
    this.socket?.send(this.#options.form.encode(frame))
  }

  deliver(message: Message): void {
    if (!this.#isClosing) this.#options.deliver(message) // the broker pushes an undelivered message again in the next session
  }

  emit(event: PeerEvent): void {
    if (event.type === 'closed' && this.#options.store) this.#released = this.#release(this.#options.store.store)
    const isDistrust = event.type === 'disconnected' && event.code === 'certificate_untrusted'
    this.#options.emit(
      isDistrust && this.#certificateError !== null ? { ...event, reason: this.#certificateError } : event,
    )
  }

  flushSoon(): void {
    this.#quietTurns = 0
    if (this.#isFlushDue) return
    this.#isFlushDue = true
    this.#turns = 0
    queueMicrotask(this.#flushWhenQuiet)
  }

  /** Advances the engine's clock and passes it one event. */
  tell<T>(happened: (engine: PeerEngine) => T): T {
    this.engine.advance(clockMs())
    const answer = happened(this.engine)
    this.#arm()
    return answer
  }

  readonly #flushWhenQuiet = (): void => {
    this.#turns += 1
    this.#quietTurns += 1
    if (this.#quietTurns < QUIET_TURNS && this.#turns < TURNS_MAX) return queueMicrotask(this.#flushWhenQuiet)
    this.#isFlushDue = false
    this.tell(() => this.engine.flush())
  }

  #keep(store: PeerStore, changes: StoreChange[]): void {
    if (this.#isStoreClosed) return // the broker pushes a message settled after the end again in the next session
    this.#writing = store.write(changes).then(
      () => this.#storeReplied(() => this.engine.storeWritten()),
      (cause) => this.#storeReplied(() => this.engine.storeFailed(cause)),
    )
  }

  #storeReplied(answer: () => void): void {
    this.#writing = null
    this.tell(answer)
  }

  async #comeToRest(): Promise<void> {
    this.tell(() => this.engine.stopAccepting())
    while (this.#writing !== null) await this.#writing
  }

  /** Closes the store after it has written earlier changes. */
  async #release(store: PeerStore): Promise<void> {
    while (this.#writing !== null) await this.#writing
    this.#isStoreClosed = true
    await store.close().catch(() => undefined) // a failed close loses nothing: every promised change is already synced
  }

  #frameReceived(dialNo: number, wire: unknown): void {
    const bytes = wire instanceof ArrayBuffer ? new Uint8Array(wire) : wire
    const isWire = typeof bytes === 'string' || bytes instanceof Uint8Array
    const decoded = isWire ? this.#options.form.decode(bytes) : null
    if (decoded?.ok) this.engine.received(dialNo, decoded.frame)
    else this.engine.malformed(dialNo)
  }

  #socketClosed(socket: WebSocketLike): void {
    if (this.socket === socket) this.socket = null
    this.#closing.delete(socket)
    if (this.#closing.size === 0) this.#whenClosed?.()
  }

  /** Sets the timer if it would fire too late. A timer that fires early is set again. */
  #arm(): void {
    const { wakeAtMs } = this.engine
    if (wakeAtMs >= this.#timerAtMs && wakeAtMs !== Infinity) return
    clearTimeout(this.#timer)
    this.#timerAtMs = wakeAtMs
    if (wakeAtMs === Infinity) return
    const inMs = Math.min(Math.max(Math.ceil(wakeAtMs - clockMs()), 1), TIMER_MAX_MS)
    this.#timer = setTimeout(this.#ring, inMs)
  }

  readonly #ring = (): void => {
    this.#timerAtMs = Infinity
    this.tell(() => this.engine.tick())
  }
}
