/** A transport that replaces lost connections, and follows all topics on each new one. */
import { assert, type MeshId, type Millis, OperatingError } from '@sealpost/std'
import type { BusTransport, BusTransportEvents, Topic, TopicPacket } from './bus.ts'

/** One connection. After an error, it is closed and calls `onClosed`. */
export interface BusConnection {
  send(packets: readonly TopicPacket[]): Promise<void>
  /** Subscribes to topics. Resolves once packets arrive. @throws OperatingError */
  follow(topics: readonly Topic[]): Promise<void>
  unfollow(topic: Topic): Promise<void>
  /** Pings the server. @throws OperatingError */
  probe(): Promise<void>
  close(): Promise<void>
}

export interface BusConnectionEvents {
  onPacket(topic: Topic, bytes: Uint8Array): void
  /** Not called after `close`. */
  onClosed(): void
}

export interface ReconnectingTransportOptions {
  readonly packetBytesMax: number
  readonly topicOf: (meshId: MeshId | null) => Topic
  /** @throws OperatingError */
  readonly open: (events: BusConnectionEvents) => Promise<BusConnection>
}

const RETRY_MS = 100
const RETRY_MS_MAX = 3_000
const PROBE_EVERY_MS = 5_000
/** The time for a reply: two batches, two sends and a busy shard. */
const REPLY_MS = 100

type State =
  | { readonly name: 'down' }
  | { readonly name: 'up'; readonly connection: BusConnection }
  | { readonly name: 'closed' }

export class ReconnectingTransport implements BusTransport {
  readonly packetBytesMax: number
  readonly #options: ReconnectingTransportOptions
  readonly #events: BusTransportEvents
  readonly #topics = new Set<Topic>()
  #state: State = { name: 'down' }
  #retry: ReturnType<typeof setTimeout> | undefined
  #retryMs: Millis = RETRY_MS
  #isDownReported = false
  readonly #probes: ReturnType<typeof setInterval>
  #connecting: Promise<void>

  constructor(options: ReconnectingTransportOptions, events: BusTransportEvents) {
    this.packetBytesMax = options.packetBytesMax
    this.#options = options
    this.#events = events
    this.#connecting = this.#connect()
    this.#probes = setInterval(() => this.#whenUp((connection) => connection.probe()), PROBE_EVERY_MS)
  }

  get isUp(): boolean {
    return this.#state.name === 'up'
  }

  get replyMs(): Millis {
    return this.isUp ? REPLY_MS : 0
  }

  topicOf(meshId: MeshId | null): Topic {
    return this.#options.topicOf(meshId)
  }

  async send(packets: readonly TopicPacket[]): Promise<void> {
    if (this.#state.name !== 'up') throw new OperatingError('bus_down', 'The bus is down.', { retryable: true })
    await this.#state.connection.send(packets)
  }

  follow(topics: readonly Topic[]): void {
    for (const topic of topics) this.#topics.add(topic)
    this.#whenUp((connection) => this.#listen(connection, topics))
  }

  unfollow(topic: Topic): void {
    this.#topics.delete(topic)
    this.#whenUp((connection) => connection.unfollow(topic))
  }

  async close(): Promise<void> {
    const state = this.#state
    this.#state = { name: 'closed' }
    clearInterval(this.#probes)
    clearTimeout(this.#retry)
    if (state.name === 'up') await state.connection.close()
    await this.#connecting
  }

  async #connect(): Promise<void> {
    let connection: BusConnection | undefined
    const closed = () => {
      if (this.#state.name === 'up' && this.#state.connection === connection) this.#lost(connectionLost())
    }
    try {
      connection = await this.#options.open({
        onPacket: (topic, bytes) => this.#events.onPacket(topic, bytes),
        onClosed: closed,
      })
      if (this.#state.name === 'closed') return await connection.close()
      this.#state = { name: 'up', connection }
      await this.#listen(connection, [...this.#topics])
    } catch (error) {
      return this.#lost(operating(error))
    }
    this.#retryMs = RETRY_MS
    this.#isDownReported = false
    this.#events.onUp()
  }

  /** Topics followed during this call are requested after these. */
  async #listen(connection: BusConnection, topics: readonly Topic[]): Promise<void> {
    await connection.follow(topics)
    this.#events.onFollowing(topics)
  }

  #whenUp(act: (connection: BusConnection) => Promise<void>): void {
    if (this.#state.name === 'up') void act(this.#state.connection).catch(operating) // `onClosed` reports the error
  }

  #lost(error: OperatingError): void {
    if (this.#state.name === 'closed') return
    this.#state = { name: 'down' }
    if (!this.#isDownReported) this.#events.onDown(error)
    this.#isDownReported = true // retries until the transport is connected again
    clearTimeout(this.#retry)
    this.#retry = setTimeout(
      () => {
        this.#connecting = this.#connect()
      },
      this.#retryMs * (0.5 + Math.random()),
    ) // pauses first, because all shards lose their server at the same time
    this.#retryMs = Math.min(RETRY_MS_MAX, this.#retryMs * 2)
  }
}

const connectionLost = () => new OperatingError('bus_down', 'The connection of the bus was lost.', { retryable: true })

function operating(error: unknown): OperatingError {
  assert(error instanceof OperatingError, 'a connection fails with an operating error')
  return error
}
