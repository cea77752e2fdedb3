/**
 * Messages between shards. Every message is a hint: it may be lost, duplicated, late or forged, and costs a delay at
 * most, because each shard also polls the database for what a hint would announce.
 */
import type { Hint } from '@sealpost/protocol/hints'
import type { MeshId, Millis, OperatingError, ShardId } from '@sealpost/std'

export interface BusListener {
  /** Receives hints of other shards about followed meshes, or about no mesh. */
  onHints(from: ShardId, hints: readonly Hint[]): void
  /**
   * Hints about these meshes arrive from now on; earlier ones may be lost. Called after each `follow`, and for all
   * after a reconnect.
   */
  onFollowing(meshes: readonly MeshId[]): void
}

/** Totals since the start. */
export interface BusCounters {
  /** Hints that were sent; a repeated hint within one batch counts once. */
  published: number
  received: number
  /** Hints that were dropped because the transport was down or too many waited. */
  lost: number
  /** Packets that were malformed, or arrived under the wrong topic. */
  invalid: number
}

export interface Bus {
  readonly counters: Readonly<BusCounters>
  /** Hints that are published now will be sent. */
  readonly isUp: boolean
  /** The time within which most replies of other shards arrive; 0 if none will. */
  readonly replyMs: Millis
  /** Sends the hint within a few milliseconds, together with others. */
  publish(hint: Hint): void
  /** Starts to receive hints about this mesh. */
  follow(meshId: MeshId): void
  unfollow(meshId: MeshId): void
  /** Every listener receives everything; it must not throw. */
  subscribe(listener: BusListener): void
  /** Sends waiting hints first. */
  close(): Promise<void>
}

/** A topic per mesh, or shared by several meshes, or for the whole cluster. */
export type Topic = string

export interface TopicPacket {
  readonly topic: Topic
  readonly bytes: Uint8Array
}

export interface BusTransportEvents {
  /** Bytes from any sender, this shard included. */
  onPacket(topic: Topic, bytes: Uint8Array): void
  /** Packets under these topics arrive from now on. */
  onFollowing(topics: readonly Topic[]): void
  /** For the log. The transport reconnects by itself. */
  onUp(): void
  onDown(error: OperatingError): void
}

/** Carries packets between shards; buses differ only in this. */
export interface BusTransport {
  readonly isUp: boolean
  readonly packetBytesMax: number
  /** The time within which most replies of other shards arrive; 0 if none will. */
  readonly replyMs: Millis
  /** @param meshId - null for the topic of the whole cluster */
  topicOf(meshId: MeshId | null): Topic
  /** Resolves when the next batch may be sent. @throws OperatingError if the packets may not have been sent */
  send(packets: readonly TopicPacket[]): Promise<void>
  /** Receives these topics too, also after every reconnect. */
  follow(topics: readonly Topic[]): void
  unfollow(topic: Topic): void
  close(): Promise<void>
}

/** Returns a transport that connects when it can. */
export type OpenBusTransport = (events: BusTransportEvents) => BusTransport
