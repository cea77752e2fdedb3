/**
 * A wire that outlives its connections: one is opened after the other, each listens to all that is followed, and none is
 * ever revived. The buses differ in what a connection is.
 */
import { assert, type MeshId, type Millis, OperatingError } from '@sealpost/std'
import type { Topic, Wire, WirePorts } from './wire.ts'

export interface Said {
  readonly topic: Topic
  readonly bytes: Uint8Array
}

/** One connection. What fails on it ends it: then `gone` is told, too. */
export interface Line {
  /** @throws OperatingError */
  send(said: readonly Said[]): Promise<void>
  /** Settles when it listens. @throws OperatingError */
  follow(topics: readonly Topic[]): Promise<void>
  /** @throws OperatingError */
  unfollow(topic: Topic): Promise<void>
  /** Asks for a sign of life. @throws OperatingError */
  probe(): Promise<void>
  close(): Promise<void>
}

export interface LinePorts {
  heard(topic: Topic, bytes: Uint8Array): void
  /** Not for one that was closed. */
  gone(): void
}

export interface KeptWireOptions {
  readonly packetBytesMax: number
  readonly topicOf: (meshId: MeshId | null) => Topic
  /** @throws OperatingError */
  readonly open: (ports: LinePorts) => Promise<Line>
}

const AGAIN_AFTER_MS = 100
const AGAIN_AFTER_MS_MAX = 3_000
const PROBE_EVERY_MS = 5_000
/** Two ticks, two sends, and a shard that is busy. */
const ANSWER_MS = 100

type State = { readonly name: 'away' } | { readonly name: 'up'; readonly line: Line } | { readonly name: 'closed' }

export class KeptWire implements Wire {
  readonly packetBytesMax: number
  private readonly options: KeptWireOptions
  private readonly ports: WirePorts
  private readonly topics = new Set<Topic>()
  private state: State = { name: 'away' }
  private again: ReturnType<typeof setTimeout> | undefined
  private againAfterMs: Millis = AGAIN_AFTER_MS
  private hasComplained = false
  private readonly probes: ReturnType<typeof setInterval>
  private connecting: Promise<void>

  constructor(options: KeptWireOptions, ports: WirePorts) {
    this.packetBytesMax = options.packetBytesMax
    this.options = options
    this.ports = ports
    this.connecting = this.connect()
    this.probes = setInterval(() => this.whenUp((line) => line.probe()), PROBE_EVERY_MS)
  }

  get isUp(): boolean {
    return this.state.name === 'up'
  }

  get answerMs(): Millis {
    return this.isUp ? ANSWER_MS : 0
  }

  topicOf(meshId: MeshId | null): Topic {
    return this.options.topicOf(meshId)
  }

  async send(said: readonly Said[]): Promise<void> {
    if (this.state.name !== 'up') throw new OperatingError('bus_away', 'The bus is away.', { retryable: true })
    await this.state.line.send(said)
  }

  follow(topics: readonly Topic[]): void {
    for (const topic of topics) this.topics.add(topic)
    this.whenUp((line) => this.listen(line, topics))
  }

  unfollow(topic: Topic): void {
    this.topics.delete(topic)
    this.whenUp((line) => line.unfollow(topic))
  }

  async close(): Promise<void> {
    const { state } = this
    this.state = { name: 'closed' }
    clearInterval(this.probes)
    clearTimeout(this.again)
    if (state.name === 'up') await state.line.close()
    await this.connecting
  }

  private async connect(): Promise<void> {
    let line: Line | undefined
    const gone = () => {
      if (this.state.name === 'up' && this.state.line === line) this.lost(cut())
    }
    try {
      line = await this.options.open({ heard: (topic, bytes) => this.ports.heard(topic, bytes), gone })
      if (this.state.name === 'closed') return await line.close()
      this.state = { name: 'up', line }
      await this.listen(line, [...this.topics])
    } catch (error) {
      return this.lost(operating(error))
    }
    this.againAfterMs = AGAIN_AFTER_MS
    this.hasComplained = false
    this.ports.up()
  }

  /** What was followed meanwhile is asked for behind this. */
  private async listen(line: Line, topics: readonly Topic[]): Promise<void> {
    await line.follow(topics)
    this.ports.listening(topics)
  }

  private whenUp(act: (line: Line) => Promise<void>): void {
    if (this.state.name === 'up') void act(this.state.line).catch(operating) // `gone` was told
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
}

const cut = () => new OperatingError('bus_away', 'The connection of the bus was lost.', { retryable: true })

function operating(error: unknown): OperatingError {
  assert(error instanceof OperatingError, 'a line fails with an operating error')
  return error
}
