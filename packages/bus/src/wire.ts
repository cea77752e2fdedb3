/** What carries packets from shard to shard: the part in which one bus differs from another. */
import type { MeshId, Millis, OperatingError } from '@sealpost/std'

/** A topic for each mesh, or one that some of them share; `null`: that of the whole cluster. */
export type Topic = string

export interface WirePorts {
  /** Bytes that arrived, of whomever. */
  heard(topic: Topic, bytes: Uint8Array): void
  /** From now on what is said under these topics arrives. */
  listening(topics: readonly Topic[]): void
  /** For the log: the wire is whole, or it is away, and why. It comes back by itself. */
  up(): void
  down(error: OperatingError): void
}

export interface Wire {
  readonly isUp: boolean
  readonly packetBytesMax: number
  /** Within which the other shards' answers to what is said now will mostly have come; 0: there will be none. */
  readonly answerMs: Millis
  topicOf(meshId: MeshId | null): Topic
  /** Settles when the next may be sent. @throws OperatingError when these may not have left */
  send(packets: readonly { readonly topic: Topic; readonly bytes: Uint8Array }[]): Promise<void>
  /** Listens to these too, and from then on after every cut. */
  follow(topics: readonly Topic[]): void
  unfollow(topic: Topic): void
  close(): Promise<void>
}

/** Opens a wire at once; it connects when it can. */
export type OpenWire = (ports: WirePorts) => Wire
