/**
 * A bus over `LISTEN` and `NOTIFY`, on a connection of its own: a `NOTIFY` inside the transactions of the queue would
 * make them wait for one another, since the server sends notifications in the order of the commits.
 *
 * Meshes share 256 topics by the first two digits of their ids. The server looks through all that a session listens to
 * for each notification, so a channel for each mesh would be dear where there are thousands.
 */
import { type Listener, NOTIFICATION_LENGTH_MAX, openListener } from '@sealpost/db'
import { assert, fromBase64url, type MeshId, type Millis, OperatingError, toBase64url } from '@sealpost/std'
import type { OpenWire, Topic, Wire, WirePorts } from './wire.ts'

const CHANNEL = 'sealpost_'
/** As text three bytes take four. */
const PACKET_BYTES_MAX = Math.floor(NOTIFICATION_LENGTH_MAX / 4) * 3
const AGAIN_AFTER_MS = 100
const AGAIN_AFTER_MS_MAX = 3_000
const PROBE_EVERY_MS = 5_000

/** Never throws: a server that is away is asked again until `close`. */
export const postgresWire =
  (databaseUrl: string): OpenWire =>
  (ports) =>
    new PostgresWire(databaseUrl, ports)

type State =
  | { readonly name: 'away' }
  | { readonly name: 'up'; readonly listener: Listener }
  | { readonly name: 'closed' }

class PostgresWire implements Wire {
  readonly packetBytesMax = PACKET_BYTES_MAX
  private readonly url: string
  private readonly ports: WirePorts
  private readonly topics = new Set<Topic>()
  private state: State = { name: 'away' }
  private again: ReturnType<typeof setTimeout> | undefined
  private againAfterMs: Millis = AGAIN_AFTER_MS
  private hasComplained = false
  private readonly probes: ReturnType<typeof setInterval>
  private connecting: Promise<void>

  constructor(url: string, ports: WirePorts) {
    this.url = url
    this.ports = ports
    this.connecting = this.connect()
    this.probes = setInterval(() => this.whenUp((listener) => listener.probe()), PROBE_EVERY_MS)
  }

  get isUp(): boolean {
    return this.state.name === 'up'
  }

  topicOf(meshId: MeshId | null): Topic {
    return CHANNEL + (meshId === null ? 'all' : meshId.slice(0, 2))
  }

  async send(packets: readonly { topic: Topic; bytes: Uint8Array }[]): Promise<void> {
    if (this.state.name !== 'up') throw new OperatingError('bus_away', 'The bus is away.', { retryable: true })
    await this.state.listener.notify(
      packets.map(({ topic, bytes }) => ({ channel: topic, payload: toBase64url(bytes) })),
    )
  }

  follow(topics: readonly Topic[]): void {
    for (const topic of topics) this.topics.add(topic)
    this.whenUp((listener) => this.listen(listener, topics))
  }

  unfollow(topic: Topic): void {
    this.topics.delete(topic)
    this.whenUp((listener) => listener.unlisten(topic))
  }

  async close(): Promise<void> {
    const { state } = this
    this.state = { name: 'closed' }
    clearInterval(this.probes)
    clearTimeout(this.again)
    if (state.name === 'up') await state.listener.close()
    await this.connecting
  }

  private async connect(): Promise<void> {
    const gone = () => {
      if (this.state.name === 'up')
        this.lost(new OperatingError('bus_away', 'The connection of the bus was lost.', { retryable: true }))
    }
    try {
      const listener = await openListener(this.url, 'sealpost bus', { heard: (...news) => this.heard(...news), gone })
      if (this.state.name === 'closed') return await listener.close()
      this.state = { name: 'up', listener }
      await this.listen(listener, [...this.topics])
    } catch (error) {
      this.lost(operating(error))
      return
    }
    this.againAfterMs = AGAIN_AFTER_MS
    this.hasComplained = false
    this.ports.up()
  }

  /** From the commit of a `LISTEN` on; what was followed meanwhile has a statement of its own behind this one. */
  private async listen(listener: Listener, topics: readonly Topic[]): Promise<void> {
    await listener.listen(topics)
    this.ports.listening(topics)
  }

  /** What fails has ended the connection, and `gone` was told. */
  private whenUp(act: (listener: Listener) => Promise<void>): void {
    if (this.state.name === 'up') void act(this.state.listener).catch(operating)
  }

  private lost(error: OperatingError): void {
    if (this.state.name === 'closed') return
    this.state = { name: 'away' }
    if (!this.hasComplained) this.ports.down(error)
    this.hasComplained = true // until it is up again
    clearTimeout(this.again)
    this.again = setTimeout(
      () => {
        this.connecting = this.connect()
      },
      this.againAfterMs * (0.5 + Math.random()),
    ) // all shards lose their server at once
    this.againAfterMs = Math.min(AGAIN_AFTER_MS_MAX, this.againAfterMs * 2)
  }

  private heard(channel: string, payload: string): void {
    let bytes: Uint8Array
    try {
      bytes = fromBase64url(payload)
    } catch {
      bytes = NO_PACKET // counted where all packets are looked at
    }
    this.ports.heard(channel, bytes)
  }
}

const NO_PACKET = new Uint8Array()

function operating(error: unknown): OperatingError {
  assert(error instanceof OperatingError, 'a listener fails with an operating error')
  return error
}
