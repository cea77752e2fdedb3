/**
 * Exchanges messages between shards. Every message is a hint, which may be lost, duplicated, late or forged. A lost one
 * only costs a delay, because shards also poll the database.
 */
import { decodePacket, encodeHint, encodePacketHeader, type Hint } from '@sealpost/protocol/hints'
import { blockOf, type MeshId, type Millis, OperatingError, type ShardId } from '@sealpost/std'

export interface BusListener {
  /** Receives hints from other shards, about followed meshes or about none. */
  onHints(from: ShardId, hints: readonly Hint[]): void
  /**
   * Called when hints about these meshes begin to arrive: after each `follow`, and for all after a reconnect. Earlier
   * hints may be lost.
   */
  onFollowing(meshes: readonly MeshId[]): void
}

interface BusCounters {
  /** Sent hints, without duplicates in a batch. */
  published: number
  received: number
  /** Hints dropped because the transport was down or too many waited. */
  lost: number
  /** Packets that were malformed or under the wrong topic. */
  invalid: number
}

export interface Bus {
  readonly counters: Readonly<BusCounters>
  /** Whether a hint published now will be sent. */
  readonly isUp: boolean
  /** The time within which most replies arrive; 0 if none will. */
  readonly replyMs: Millis
  /** Sends the hint with others, within a few milliseconds. */
  publish(hint: Hint): void
  follow(meshId: MeshId): void
  unfollow(meshId: MeshId): void
  /** Adds a listener of every hint, which must not throw. */
  subscribe(listener: BusListener): void
  /** Sends the waiting hints, then closes the transport. */
  close(): Promise<void>
}

/** The topic of one mesh, of several meshes, or of the whole cluster. */
export type Topic = string

export interface TopicPacket {
  readonly topic: Topic
  readonly bytes: Uint8Array
}

export interface BusTransportEvents {
  /** Receives a packet from any sender, including this shard. */
  onPacket(topic: Topic, bytes: Uint8Array): void
  /** Called when packets under these topics begin to arrive. */
  onFollowing(topics: readonly Topic[]): void
  onUp(): void
  /** Called with an error for the log. The transport reconnects by itself. */
  onDown(error: OperatingError): void
}

/** Carries packets between shards. Buses differ only in their transport. */
export interface BusTransport {
  readonly isUp: boolean
  readonly packetBytesMax: number
  /** The time within which most replies arrive; 0 if none will. */
  readonly replyMs: Millis
  /** @param meshId - null for the topic of the whole cluster */
  topicOf(meshId: MeshId | null): Topic
  /** Resolves when the next batch may be sent. @throws OperatingError if the packets may not have been sent */
  send(packets: readonly TopicPacket[]): Promise<void>
  /** Subscribes to these topics now and after every reconnect. */
  follow(topics: readonly Topic[]): void
  unfollow(topic: Topic): void
  close(): Promise<void>
}

/** Returns a transport, which connects by itself. */
export type OpenBusTransport = (events: BusTransportEvents) => BusTransport

/** The pause between two sends, which do not overlap, so that a slow transport sends larger batches. */
const BATCH_MS: Millis = 2
/** The maximum number of hints that wait while the bus is down, which take a few megabytes. */
const WAITING_MAX = 50_000

interface BatchingBusOptions {
  readonly shard: ShardId
  readonly open: OpenBusTransport
  readonly up?: () => void
  readonly down?: (error: OperatingError) => void
}

/**
 * Implements a bus over any transport: batches hints without duplicates, packs them by topic, and drops misdirected
 * packets.
 */
export class BatchingBus implements Bus {
  readonly counters: BusCounters = { published: 0, received: 0, lost: 0, invalid: 0 }
  readonly #transport: BusTransport
  readonly #listeners: BusListener[] = []
  readonly #followed = new Map<Topic, Set<MeshId>>()
  readonly #header: Uint8Array
  #waiting = new Map<string, Hint>()
  #sending: Promise<void> | null = null
  #timer: ReturnType<typeof setTimeout> | null = null
  #sentAtMs: Millis = 0
  #isClosed = false

  constructor({ shard, open, up = nothing, down = nothing }: BatchingBusOptions) {
    this.#header = encodePacketHeader(shard)
    this.#transport = open({
      onPacket: (topic, bytes) => this.#receive(topic, bytes),
      onFollowing: (topics) => this.#following(topics),
      onUp: () => {
        up()
        if (this.#waiting.size > 0) this.#sendSoon()
      },
      onDown: down,
    })
    this.#transport.follow([this.#transport.topicOf(null)])
  }

  get isUp(): boolean {
    return this.#transport.isUp
  }

  get replyMs(): Millis {
    return this.#transport.replyMs
  }

  publish(hint: Hint): void {
    const isLost = !this.#transport.isUp && !survivesReconnect(hint)
    if (isLost || this.#isClosed || this.#waiting.size >= WAITING_MAX) {
      this.counters.lost += 1
      return
    }
    const key = keyOf(hint)
    this.#waiting.delete(key) // replaces an earlier value in its position
    this.#waiting.set(key, hint)
    this.#sendSoon()
  }

  follow(meshId: MeshId): void {
    const topic = this.#transport.topicOf(meshId)
    const meshes = this.#followed.get(topic)
    if (meshes) {
      meshes.add(meshId)
      return
    }
    this.#followed.set(topic, new Set([meshId]))
    this.#transport.follow([topic])
  }

  unfollow(meshId: MeshId): void {
    const topic = this.#transport.topicOf(meshId)
    const meshes = this.#followed.get(topic)
    if (!meshes?.delete(meshId) || meshes.size > 0) return
    this.#followed.delete(topic)
    this.#transport.unfollow(topic)
  }

  subscribe(listener: BusListener): void {
    this.#listeners.push(listener)
  }

  async close(): Promise<void> {
    this.#isClosed = true
    if (this.#timer) clearTimeout(this.#timer)
    await this.#sending
    if (this.#waiting.size > 0) await this.#send()
    await this.#transport.close()
  }

  #sendSoon(): void {
    if (this.#timer || this.#sending || this.#isClosed || !this.#transport.isUp) return
    const afterMs = Math.max(0, this.#sentAtMs + BATCH_MS - performance.now())
    this.#timer = setTimeout(() => {
      this.#timer = null
      this.#sending = this.#send().finally(() => {
        this.#sending = null
        if (this.#waiting.size > 0) this.#sendSoon()
      })
    }, afterMs)
  }

  async #send(): Promise<void> {
    const batch = this.#waiting
    this.#waiting = new Map()
    this.#sentAtMs = performance.now()
    try {
      await this.#transport.send(this.#packed([...batch.values()]))
      this.counters.published += batch.size
    } catch (error) {
      if (!(error instanceof OperatingError)) throw error
      this.#requeue(batch) // the transport has reported the error itself
    }
  }

  /**
   * Adds unsent hints to the next batch, because other shards may have polled before the announced change was stored.
   */
  #requeue(unsent: ReadonlyMap<string, Hint>): void {
    const later = this.#waiting
    const all = [...[...unsent].filter(([key]) => !later.has(key)), ...later]
    const waiting = all.filter(([, hint]) => survivesReconnect(hint)).slice(-WAITING_MAX)
    this.counters.lost += all.length - waiting.length
    this.#waiting = new Map(waiting)
  }

  #packed(hints: readonly Hint[]): TopicPacket[] {
    const packets: TopicPacket[] = []
    const byTopic = Map.groupBy(hints, (hint) => this.#transport.topicOf(meshOf(hint)))
    for (const [topic, some] of byTopic)
      for (const bytes of packed(this.#header, some.map(encodeHint), this.#transport.packetBytesMax))
        packets.push({ topic, bytes })
    return packets
  }

  #receive(topic: Topic, bytes: Uint8Array): void {
    if (this.#isClosed || this.#isOwn(bytes)) return // a transport may return our own packets
    const packet = decodePacket(bytes)
    if (!packet || packet.hints.some((hint) => this.#transport.topicOf(meshOf(hint)) !== topic)) {
      this.counters.invalid += 1
      return
    }
    const hints = packet.hints.filter((hint) => this.#isFollowed(topic, meshOf(hint))) // topics may be shared
    this.counters.received += hints.length
    if (hints.length > 0) for (const listener of this.#listeners) listener.onHints(packet.from, hints)
  }

  #isOwn(bytes: Uint8Array): boolean {
    return bytes.length >= this.#header.length && this.#header.every((byte, i) => bytes[i] === byte)
  }

  #isFollowed(topic: Topic, meshId: MeshId | null): boolean {
    return meshId === null || this.#followed.get(topic)?.has(meshId) === true
  }

  #following(topics: readonly Topic[]): void {
    const meshes = topics.flatMap((topic) => [...(this.#followed.get(topic) ?? [])])
    for (const listener of this.#listeners) listener.onFollowing(meshes)
  }
}

const nothing = () => undefined

/** Presence and ephemeral hints are outdated after a reconnect. */
const survivesReconnect = ({ type }: Hint): boolean => type !== 'ephemeral' && type !== 'whoIsThere'

const meshOf = (hint: Hint): MeshId | null => ('meshId' in hint ? hint.meshId : null)

/** Returns the key of a hint. A later hint with the same key replaces an earlier one. */
function keyOf(hint: Hint): string {
  switch (hint.type) {
    case 'wake':
    case 'superseded':
    case 'revoked':
      return `${hint.type} ${hint.meshId} ${hint.peer}`
    case 'presence':
    case 'staleKey':
    case 'serves':
      return `${hint.type} ${hint.meshId} ${hint.peer}`
    case 'born':
      return `born ${hint.meshId} ${hint.peer} ${blockOf(hint.id)}`
    case 'ephemeral':
      return `ephemeral ${hint.meshId} ${hint.sender} ${hint.envelopeId}`
    case 'staleConsent':
      return `${hint.type} ${hint.meshId} ${hint.user}`
    case 'staleGroup':
      return `${hint.type} ${hint.meshId} ${hint.group}`
    case 'stalePool':
      return `${hint.type} ${hint.meshId} ${hint.pool}`
    case 'happened':
    case 'staleSpace':
      return `${hint.type} ${hint.meshId} ${hint.space}`
    case 'whoIsThere':
      return `${hint.type} ${hint.meshId}`
    case 'shards':
      return hint.type
  }
}

/** Packs encoded hints into as few packets as possible. */
function packed(header: Uint8Array, hints: readonly Uint8Array[], bytesMax: number): Uint8Array[] {
  const packets: Uint8Array[] = []
  let parts = [header]
  let byteCount = header.length
  for (const hint of hints) {
    if (byteCount + hint.length > bytesMax) {
      packets.push(concat(parts, byteCount))
      parts = [header]
      byteCount = header.length
    }
    parts.push(hint)
    byteCount += hint.length
  }
  packets.push(concat(parts, byteCount))
  return packets
}

function concat(parts: readonly Uint8Array[], byteCount: number): Uint8Array {
  const bytes = new Uint8Array(byteCount)
  let at = 0
  for (const part of parts) {
    bytes.set(part, at)
    at += part.length
  }
  return bytes
}

/** The packet limit, small enough for tests to split packets. */
const PACKET_BYTES_MAX = 6_000

/** A bus inside one process, for tests and for a single broker. */
export class MemoryHub {
  readonly #transports = new Set<MemoryTransport>()

  join(shard: ShardId): Bus {
    return new BatchingBus({ shard, open: (events) => this.open(events) })
  }

  /** Opens a transport without a shard, for tests. */
  open(events: BusTransportEvents): BusTransport {
    const transport = new MemoryTransport(this, events)
    this.#transports.add(transport)
    return transport
  }

  deliver(topic: Topic, bytes: Uint8Array): void {
    for (const transport of this.#transports) transport.receive(topic, bytes)
  }

  remove(transport: MemoryTransport): void {
    this.#transports.delete(transport)
  }
}

class MemoryTransport implements BusTransport {
  readonly isUp = true
  readonly replyMs = 20
  readonly packetBytesMax = PACKET_BYTES_MAX
  readonly #hub: MemoryHub
  readonly #events: BusTransportEvents
  readonly #topics = new Set<Topic>()

  constructor(hub: MemoryHub, events: BusTransportEvents) {
    this.#hub = hub
    this.#events = events
  }

  topicOf(meshId: MeshId | null): Topic {
    return meshId ?? 'all'
  }

  async send(packets: readonly { topic: Topic; bytes: Uint8Array }[]): Promise<void> {
    for (const { topic, bytes } of packets) this.#hub.deliver(topic, bytes)
  }

  receive(topic: Topic, bytes: Uint8Array): void {
    if (this.#topics.has(topic)) this.#events.onPacket(topic, bytes)
  }

  follow(topics: readonly Topic[]): void {
    for (const topic of topics) this.#topics.add(topic)
    queueMicrotask(() => this.#events.onFollowing(topics))
  }

  unfollow(topic: Topic): void {
    this.#topics.delete(topic)
  }

  async close(): Promise<void> {
    this.#hub.remove(this)
  }
}
