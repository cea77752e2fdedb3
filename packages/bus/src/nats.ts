/**
 * Runs a bus over NATS, with one subject per mesh and no stored messages. Subjects begin with the cluster's name, so
 * that clusters can share servers. The client's own reconnect is off, because it would buffer duplicates.
 */
import type { NatsConnection } from '@nats-io/transport-node'
import { type MeshId, OperatingError } from '@sealpost/std'
import type { OpenBusTransport, Topic } from './bus.ts'
import { type BusConnection, type BusConnectionEvents, ReconnectingTransport } from './reconnecting-transport.ts'

export interface NatsOptions {
  /** URLs such as `nats://user:password@host:port` or `tls://…`, one of which is chosen. */
  readonly urls: readonly string[]
  /** The contents of a `.creds` file. */
  readonly credentials?: string
  /** The cluster's name: letters, digits, `-` and `_`. */
  readonly cluster: string
}

/** The packet limit. Servers accept 1 MiB, but smaller packets delay others less. */
const PACKET_BYTES_MAX = 32 * 1024
const CONNECT_TIMEOUT_MS = 5_000
const PING_EVERY_MS = 5_000

export const natsTopicOf =
  (cluster: string) =>
  (meshId: MeshId | null): Topic =>
    `sealpost.${cluster}.${meshId ?? 'all'}`

export const natsTransport =
  (options: NatsOptions): OpenBusTransport =>
  (events) =>
    new ReconnectingTransport(
      {
        packetBytesMax: PACKET_BYTES_MAX,
        topicOf: natsTopicOf(options.cluster),
        open: (connectionEvents) => openBusConnection(options, connectionEvents),
      },
      events,
    )

async function openBusConnection(options: NatsOptions, events: BusConnectionEvents): Promise<BusConnection> {
  // Load the client only if needed, because that takes 17 ms.
  const nats = await import('@nats-io/transport-node')
  const connection = await request(() => nats.connect(optionsOf(options, nats)))
  void connection.closed().then(events.onClosed) // after `close`, `onClosed` ignores this
  return new NatsBusConnection(connection, events)
}

class NatsBusConnection implements BusConnection {
  readonly #connection: NatsConnection
  readonly #events: BusConnectionEvents
  readonly #subscriptions = new Map<Topic, { unsubscribe(): void }>()
  readonly #flushing = new Set<(reason: unknown) => void>()
  #isDenied = false

  constructor(connection: NatsConnection, events: BusConnectionEvents) {
    this.#connection = connection
    this.#events = events
    void connection.closed().then((error) => {
      for (const fail of this.#flushing) fail(error || new Error('the connection was closed'))
    })
  }

  /** Resolves with the reply to a flush, which paces the batches. */
  send(packets: Parameters<BusConnection['send']>[0]): Promise<void> {
    return request(() => {
      for (const { topic, bytes } of packets) this.#connection.publish(topic, bytes)
      return this.#flushed()
    })
  }

  follow(topics: readonly Topic[]): Promise<void> {
    return request(async () => {
      for (const topic of topics)
        this.#subscriptions.set(topic, this.#connection.subscribe(topic, { callback: this.#receive }))
      await this.#flushed()
      if (!this.#isDenied) return
      await this.#connection.close()
      throw new Error('the account may not subscribe')
    })
  }

  unfollow(topic: Topic): Promise<void> {
    return request(async () => {
      this.#subscriptions.get(topic)?.unsubscribe()
      this.#subscriptions.delete(topic)
    })
  }

  probe(): Promise<void> {
    return Promise.resolve() // the client sends its own pings
  }

  close(): Promise<void> {
    return request(() => this.#connection.close())
  }

  /**
   * Rejects if the connection closes first, because the client then leaves its flushes pending. `Promise.race` with one
   * promise of the connection would keep about 65 bytes for each flush until the connection closes.
   */
  async #flushed(): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    this.#flushing.add(reject)
    this.#connection.flush().then(resolve, reject)
    try {
      await promise
    } finally {
      this.#flushing.delete(reject)
    }
  }

  /** An error means that the account may not subscribe. It precedes the reply to the flush. */
  readonly #receive = (error: Error | null, { subject, data }: { subject: string; data: Uint8Array }): void => {
    if (error) this.#isDenied = true
    else this.#events.onPacket(subject, data)
  }
}

type Client = typeof import('@nats-io/transport-node')

function optionsOf({ urls, credentials, cluster }: NatsOptions, nats: Client): Parameters<Client['connect']>[0] {
  const parsed = urls.map((url) => new URL(url))
  const { username, password } = parsed[0]!
  const login = password
    ? { user: decodeURIComponent(username), pass: decodeURIComponent(password) }
    : username
      ? { token: decodeURIComponent(username) }
      : {}
  return {
    servers: parsed.map(({ host }) => host),
    name: `sealpost ${cluster}`,
    ...login,
    ...(credentials ? { authenticator: nats.credsAuthenticator(new TextEncoder().encode(credentials)) } : {}),
    ...(parsed.some(({ protocol }) => protocol === 'tls:') ? { tls: {} } : {}),
    noEcho: true,
    reconnect: false,
    timeout: CONNECT_TIMEOUT_MS,
    pingInterval: PING_EVERY_MS,
    maxPingOut: 1,
  }
}

/** Keeps only the name of the client's error, whose message may quote connection options. */
async function request<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call()
  } catch (error) {
    const name = error instanceof Error ? error.name : 'unknown error'
    throw new OperatingError('bus_down', `NATS is not available (${name}).`, { retryable: true })
  }
}
