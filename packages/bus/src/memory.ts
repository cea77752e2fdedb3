/** A bus inside one process: shards of a test, and the broker that is alone. */
import type { MeshId, ShardId } from '@sealpost/std'
import type { Bus } from './bus.ts'
import { GatheredBus } from './gathered-bus.ts'
import type { Topic, Wire, WirePorts } from './wire.ts'

/** Small, so that packets are split in tests, too. */
const PACKET_BYTES_MAX = 6_000

export class MemoryHub {
  private readonly wires = new Set<MemoryWire>()

  join(shard: ShardId): Bus {
    return new GatheredBus({ shard, open: (ports) => this.open(ports) })
  }

  /** A wire of its own: what a test says on it is said by no shard. */
  open(ports: WirePorts): Wire {
    const wire = new MemoryWire(this, ports)
    this.wires.add(wire)
    return wire
  }

  carry(topic: Topic, bytes: Uint8Array): void {
    for (const wire of this.wires) wire.arrived(topic, bytes)
  }

  left(wire: MemoryWire): void {
    this.wires.delete(wire)
  }
}

class MemoryWire implements Wire {
  readonly isUp = true
  readonly answerMs = 20
  readonly packetBytesMax = PACKET_BYTES_MAX
  private readonly hub: MemoryHub
  private readonly ports: WirePorts
  private readonly topics = new Set<Topic>()

  constructor(hub: MemoryHub, ports: WirePorts) {
    this.hub = hub
    this.ports = ports
  }

  topicOf(meshId: MeshId | null): Topic {
    return meshId ?? 'all'
  }

  async send(packets: readonly { topic: Topic; bytes: Uint8Array }[]): Promise<void> {
    for (const { topic, bytes } of packets) this.hub.carry(topic, bytes)
  }

  arrived(topic: Topic, bytes: Uint8Array): void {
    if (this.topics.has(topic)) this.ports.heard(topic, bytes)
  }

  follow(topics: readonly Topic[]): void {
    for (const topic of topics) this.topics.add(topic)
    queueMicrotask(() => this.ports.listening(topics))
  }

  unfollow(topic: Topic): void {
    this.topics.delete(topic)
  }

  async close(): Promise<void> {
    this.hub.left(this)
  }
}
