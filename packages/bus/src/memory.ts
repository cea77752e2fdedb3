/** A bus inside one process: for shards in tests, and for a single broker. */
import type { MeshId, ShardId } from '@sealpost/std'
import { BatchingBus } from './batching-bus.ts'
import type { Bus, BusTransport, BusTransportEvents, Topic } from './bus.ts'

/** Small, so that tests split packets too. */
const PACKET_BYTES_MAX = 6_000

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
