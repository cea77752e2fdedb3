/**
 * A bus over whichever wire: gathers the hints of a moment, says each once, packs them by topic, and lets nothing through
 * that another shard could not have meant for this one.
 */
import { decodePacket, encodeHint, encodePacketHeader, type Hint } from '@sealpost/protocol/hints'
import { blockOf, type MeshId, type Millis, OperatingError, type ShardId } from '@sealpost/std'
import type { Bus, BusCounters, BusListener } from './bus.ts'
import type { OpenWire, Topic, Wire } from './wire.ts'

/** Between two sends. One send is under way at a time, so a slow wire gathers more by itself. */
const TICK_MS: Millis = 2
/** A wake has 21 bytes; a few megabytes are what a lost bus may cost. */
const WAITING_MAX = 50_000

export interface GatheredBusOptions {
  readonly shard: ShardId
  readonly open: OpenWire
  /** The wire came or went. */
  readonly up?: () => void
  readonly down?: (error: OperatingError) => void
}

export class GatheredBus implements Bus {
  readonly counters: BusCounters = { published: 0, heard: 0, lost: 0, dropped: 0 }
  private readonly wire: Wire
  private readonly listeners: BusListener[] = []
  private readonly followed = new Map<Topic, Set<MeshId>>()
  private readonly header: Uint8Array
  private waiting = new Map<string, Hint>()
  private sending: Promise<void> | null = null
  private timer: ReturnType<typeof setTimeout> | null = null
  private sentAtMs: Millis = 0
  private isClosed = false

  constructor({ shard, open, up = nothing, down = nothing }: GatheredBusOptions) {
    this.header = encodePacketHeader(shard)
    this.wire = open({
      heard: (topic, bytes) => this.heard(topic, bytes),
      listening: (topics) => this.listening(topics),
      up: () => {
        up()
        if (this.waiting.size > 0) this.sendSoon()
      },
      down,
    })
    this.wire.follow([this.wire.topicOf(null)])
  }

  get isUp(): boolean {
    return this.wire.isUp
  }

  get answerMs(): Millis {
    return this.wire.answerMs
  }

  publish(hint: Hint): void {
    const isLost = !this.wire.isUp && !outlivesCut(hint)
    if (isLost || this.isClosed || this.waiting.size >= WAITING_MAX) {
      this.counters.lost += 1
      return
    }
    const key = keyOf(hint)
    this.waiting.delete(key) // what was said last stands, in its place
    this.waiting.set(key, hint)
    this.sendSoon()
  }

  follow(meshId: MeshId): void {
    const topic = this.wire.topicOf(meshId)
    const meshes = this.followed.get(topic)
    if (meshes) {
      meshes.add(meshId)
      return
    }
    this.followed.set(topic, new Set([meshId]))
    this.wire.follow([topic])
  }

  unfollow(meshId: MeshId): void {
    const topic = this.wire.topicOf(meshId)
    const meshes = this.followed.get(topic)
    if (!meshes?.delete(meshId) || meshes.size > 0) return
    this.followed.delete(topic)
    this.wire.unfollow(topic)
  }

  subscribe(listener: BusListener): void {
    this.listeners.push(listener)
  }

  async close(): Promise<void> {
    this.isClosed = true
    if (this.timer) clearTimeout(this.timer)
    await this.sending
    if (this.waiting.size > 0) await this.send()
    await this.wire.close()
  }

  private sendSoon(): void {
    if (this.timer || this.sending || this.isClosed || !this.wire.isUp) return
    const afterMs = Math.max(0, this.sentAtMs + TICK_MS - performance.now())
    this.timer = setTimeout(() => {
      this.timer = null
      this.sending = this.send().finally(() => {
        this.sending = null
        if (this.waiting.size > 0) this.sendSoon()
      })
    }, afterMs)
  }

  private async send(): Promise<void> {
    const said = this.waiting
    this.waiting = new Map()
    this.sentAtMs = performance.now()
    try {
      await this.wire.send(this.packed([...said.values()]))
      this.counters.published += said.size
    } catch (error) {
      if (!(error instanceof OperatingError)) throw error
      this.keep(said) // the wire tells by itself that it is away
    }
  }

  /** A shard whose own wire is back has looked already, perhaps before what these tell of was stored: they go out with the next. */
  private keep(unsaid: ReadonlyMap<string, Hint>): void {
    const later = this.waiting
    const all = [...[...unsaid].filter(([key]) => !later.has(key)), ...later]
    const kept = all.filter(([, hint]) => outlivesCut(hint)).slice(-WAITING_MAX)
    this.counters.lost += all.length - kept.length
    this.waiting = new Map(kept)
  }

  private packed(hints: readonly Hint[]): { topic: Topic; bytes: Uint8Array }[] {
    const packets: { topic: Topic; bytes: Uint8Array }[] = []
    const byTopic = Map.groupBy(hints, (hint) => this.wire.topicOf(meshOf(hint)))
    for (const [topic, some] of byTopic)
      for (const bytes of packed(this.header, some.map(encodeHint), this.wire.packetBytesMax))
        packets.push({ topic, bytes })
    return packets
  }

  private heard(topic: Topic, bytes: Uint8Array): void {
    if (this.isClosed || this.isOwn(bytes)) return // a wire may bring back what was sent, to be read by nobody
    const packet = decodePacket(bytes)
    if (!packet || packet.hints.some((hint) => this.wire.topicOf(meshOf(hint)) !== topic)) {
      this.counters.dropped += 1
      return
    }
    const hints = packet.hints.filter((hint) => this.isOfHere(topic, meshOf(hint))) // meshes may share a topic
    this.counters.heard += hints.length
    if (hints.length > 0) for (const listener of this.listeners) listener.heard(packet.from, hints)
  }

  private isOwn(bytes: Uint8Array): boolean {
    return bytes.length >= this.header.length && this.header.every((byte, i) => bytes[i] === byte)
  }

  private isOfHere(topic: Topic, meshId: MeshId | null): boolean {
    return meshId === null || this.followed.get(topic)?.has(meshId) === true
  }

  private listening(topics: readonly Topic[]): void {
    const meshes = topics.flatMap((topic) => [...(this.followed.get(topic) ?? [])])
    for (const listener of this.listeners) listener.listening(meshes)
  }
}

const nothing = () => undefined

/** The others are about a moment that is over by then. */
const outlivesCut = ({ type }: Hint): boolean => type !== 'whisper' && type !== 'whoIsThere'

const meshOf = (hint: Hint): MeshId | null => ('meshId' in hint ? hint.meshId : null)

/** Two hints of one key say the same, or the later one says it better. */
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
    case 'whisper':
      return `whisper ${hint.meshId} ${hint.sender} ${hint.envelopeId}`
    case 'staleConsent':
      return `${hint.type} ${hint.meshId} ${hint.person}`
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

/** As few packets as hold them all; none of these is longer than a packet may be. */
function packed(header: Uint8Array, hints: readonly Uint8Array[], bytesMax: number): Uint8Array[] {
  const packets: Uint8Array[] = []
  let parts = [header]
  let byteCount = header.length
  for (const hint of hints) {
    if (byteCount + hint.length > bytesMax) {
      packets.push(joined(parts, byteCount))
      parts = [header]
      byteCount = header.length
    }
    parts.push(hint)
    byteCount += hint.length
  }
  packets.push(joined(parts, byteCount))
  return packets
}

function joined(parts: readonly Uint8Array[], byteCount: number): Uint8Array {
  const bytes = new Uint8Array(byteCount)
  let at = 0
  for (const part of parts) {
    bytes.set(part, at)
    at += part.length
  }
  return bytes
}
