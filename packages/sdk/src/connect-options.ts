/** What a peer is opened with. */
import type { BoxKeys, Identity } from '@sealpost/identity'
import type { Form } from '@sealpost/protocol'
import type { MeshId, PeerKey } from '@sealpost/std'
import type { WebSocketConstructor } from './connection/dial.ts'
import type { PeerEvent } from './events.ts'
import type { KeyEpochs } from './keys/key-epochs.ts'
import type { PeerStore } from './stores/store.ts'

export interface ConnectOptions {
  /**
   * `wss://host[:port]`, or `ws://` for a broker of one's own machine. The path is `/v1/ws` unless it names another. Several
   * are brokers of one cluster: dialled in turn until one answers, which may send the peer to where its mesh is at home.
   */
  readonly url: string | readonly string[]
  /** The pinned key, from the invite or the operator; a server that can't prove it is refused. */
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly identity: Identity
  /** Box keys from before a rotation, and one that was to be published when a former life ended: for opening only. */
  readonly formerBoxKeys?: readonly BoxKeys[]
  /** Identity keys that this one has followed: mail that was sealed to them is opened, too. */
  readonly formerKeys?: readonly PeerKey[]
  /** Unacknowledged envelopes at a time. Default 64. */
  readonly window?: number
  /** Unsettled deliveries the broker may have pushed. Default 512. */
  readonly credit?: number
  /**
   * Whether the lease of a message continues while the promise of its handler, or the loop that has it, is at work: it may
   * take minutes then. One that never ends holds its message as long as its session lasts. Default true.
   */
  readonly autoExtend?: boolean
  /** Default `binary`; `json` is for people who read along. */
  readonly form?: Form
  /** Default: the platform's. */
  readonly webSocket?: WebSocketConstructor
  /**
   * Outbox and inbox of this peer beyond its process: from `openFileStore`, `openIndexedDbStore` or `MemoryStore`. What
   * was posted leaves in a later life if not in this one, and what was settled is not handed out again. The peer closes
   * it when it is over. Default: none, everything ends with the process.
   */
  readonly store?: PeerStore
  /**
   * The newest box key epochs seen, which a broker can't go back behind: from `openKeyEpochs` (`@sealpost/sdk/key-epochs`), for peers and spaces that
   * share them beyond this process. Default: `store` keeps them with the mail; without a store they end with the process.
   */
  readonly keyEpochs?: KeyEpochs
  /**
   * A message that its sender sealed longer ago is rejected as `too_old` and not handed out, by this machine's clock and the
   * sender's. It bounds what a broker can replay to a process that remembers nothing. Default: 31 days without a store,
   * a day more than the longest time to live of a broker by default, and `Infinity` with one. A message that this peer remembers
   * to have rejected for another reason is handed out when it is redriven, whatever its age: it was never settled.
   */
  readonly maxAgeSeconds?: number
  readonly onEvent?: (event: PeerEvent) => void
  /** Ends waiting for the first session. */
  readonly signal?: AbortSignal
}
