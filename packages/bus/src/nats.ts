/**
 * A bus over NATS, for clusters that have one: a subject for each mesh, nothing stored there. Several clusters may share
 * its servers, since a subject begins with the name of its own.
 *
 * The official client is used for one connection at a time. Left to itself it would keep all that is said while it is
 * away, whatever that is and however often it was said.
 */
import { connect, credsAuthenticator, type NatsConnection } from '@nats-io/transport-node'
import { type MeshId, OperatingError } from '@sealpost/std'
import { KeptWire, type Line, type LinePorts } from './kept-wire.ts'
import type { OpenWire, Topic } from './wire.ts'

export interface NatsOptions {
  /** nats://user:password@host:port, or tls://; one of them is taken. */
  readonly urls: readonly string[]
  /** The text of a `.creds` file. */
  readonly credentials?: string
  /** Names of letters, digits, `-` and `_`. */
  readonly cluster: string
}

/** A server takes 1 MiB unless told otherwise; a small part of it keeps others from waiting. */
const PACKET_BYTES_MAX = 32 * 1024
const CONNECT_WITHIN_MS = 5_000
const PING_EVERY_MS = 5_000

export const natsTopicOf =
  (cluster: string) =>
  (meshId: MeshId | null): Topic =>
    `sealpost.${cluster}.${meshId ?? 'all'}`

export const natsWire =
  (options: NatsOptions): OpenWire =>
  (ports) =>
    new KeptWire(
      {
        packetBytesMax: PACKET_BYTES_MAX,
        topicOf: natsTopicOf(options.cluster),
        open: (linePorts) => openLine(options, linePorts),
      },
      ports,
    )

async function openLine(options: NatsOptions, ports: LinePorts): Promise<Line> {
  const connection = await asked(() => connect(optionsOf(options)))
  void connection.closed().then(ports.gone) // also after `close`, when nobody listens any more
  return new NatsLine(connection, ports)
}

class NatsLine implements Line {
  private readonly connection: NatsConnection
  private readonly ports: LinePorts
  private readonly subscriptions = new Map<Topic, { unsubscribe(): void }>()
  private isBarred = false

  constructor(connection: NatsConnection, ports: LinePorts) {
    this.connection = connection
    this.ports = ports
  }

  /** The answer to a flush paces what is said, as a commit does. */
  send(said: Parameters<Line['send']>[0]): Promise<void> {
    return asked(() => {
      for (const { topic, bytes } of said) this.connection.publish(topic, bytes)
      return this.connection.flush()
    })
  }

  follow(topics: readonly Topic[]): Promise<void> {
    return asked(async () => {
      for (const topic of topics)
        this.subscriptions.set(topic, this.connection.subscribe(topic, { callback: this.heard }))
      await this.connection.flush()
      if (!this.isBarred) return
      await this.connection.close()
      throw new Error('the account may not listen')
    })
  }

  unfollow(topic: Topic): Promise<void> {
    return asked(async () => {
      this.subscriptions.get(topic)?.unsubscribe()
      this.subscriptions.delete(topic)
    })
  }

  probe(): Promise<void> {
    return Promise.resolve() // the client does it
  }

  close(): Promise<void> {
    return asked(() => this.connection.close())
  }

  /** An error says that the server does not let us listen; it comes before the answer to the flush. */
  private readonly heard = (error: Error | null, { subject, data }: { subject: string; data: Uint8Array }): void => {
    if (error) this.isBarred = true
    else this.ports.heard(subject, data)
  }
}

function optionsOf({ urls, credentials, cluster }: NatsOptions): Parameters<typeof connect>[0] {
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
    ...(credentials ? { authenticator: credsAuthenticator(new TextEncoder().encode(credentials)) } : {}),
    ...(parsed.some(({ protocol }) => protocol === 'tls:') ? { tls: {} } : {}),
    noEcho: true,
    reconnect: false,
    timeout: CONNECT_WITHIN_MS,
    pingInterval: PING_EVERY_MS,
    maxPingOut: 1,
  }
}

/** The client's errors may quote what it was given: only their names go on. */
async function asked<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask()
  } catch (error) {
    const name = error instanceof Error ? error.name : 'unknown error'
    throw new OperatingError('bus_away', `NATS is not available (${name}).`, { retryable: true })
  }
}
