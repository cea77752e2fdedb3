/**
 * Defines the types that engine and queue share, since neither imports the other. All times follow the database clock.
 */
import type { DeliveryId, EnvelopeId, MeshId, Millis, PeerKey, PeerNo, PoolId, SpaceId } from '@sealpost/std'
import type { ConsentPolicy, KeyBindingEntry } from './frames.ts'
import type { Death } from './terms.ts'

export interface DeliveryRef {
  readonly meshId: MeshId
  readonly recipient: PeerNo
  /** The index in `PRIORITIES`. */
  readonly priority: number
  readonly id: DeliveryId
  /** The member that holds a delivery of a pool. A statement has no effect if another member does. */
  readonly holder?: PeerNo
}

/** Compares in the order of pushes: by priority, then by id. */
export const byPlace = (a: Pick<DeliveryRef, 'priority' | 'id'>, b: Pick<DeliveryRef, 'priority' | 'id'>): number =>
  a.priority - b.priority || a.id - b.id

export interface Settle extends DeliveryRef {
  /** The sender, if it requested a receipt. */
  readonly receiptTo?: PeerKey | null
}

export interface Reject {
  readonly delivery: DeliveryRef
  readonly epoch: number
  readonly reason: string
}

export interface Extension {
  readonly delivery: DeliveryRef
  readonly epoch: number
  readonly forMs: Millis
}

export interface Retry {
  readonly delivery: DeliveryRef
  readonly epoch: number
  readonly afterMs: Millis
}

/** Returns a delivery to its queue without a failed attempt. `epoch`: for a delivery of a pool, see `PoolSlot`. */
export interface Release {
  readonly delivery: DeliveryRef
  readonly epoch: number
  /** Whether the attempt does not count, because the recipient has not touched the delivery. */
  readonly isUntouched: boolean
}

/** A live session, as its shard believes. A statement with a stale epoch changes nothing. */
export interface SessionRef {
  readonly meshId: MeshId
  readonly peer: PeerNo
  readonly epoch: number
}

export interface SessionStatus {
  /** The member's current key; null without a member. */
  readonly peerKey: PeerKey | null
  readonly isRevoked: boolean
  /** Whether another shard has since opened a session of this peer. */
  readonly isElsewhere: boolean
  /** Whether the mesh is moving to another cell or has moved there. */
  readonly isAway?: boolean
}

export interface Append {
  readonly meshId: MeshId
  readonly sender: PeerNo
  readonly recipient: PeerNo
  readonly envelopeId: EnvelopeId
  readonly priority: number
  readonly ttlSeconds: number
  readonly envelope: Uint8Array
  /**
   * The epoch of the recipient's session on this shard, for a lease on insert; 0 for none. The queue refuses the lease,
   * but not the envelope, if an older delivery from the sender waits unclaimed (P6).
   */
  readonly insertLeaseEpoch: number
  /**
   * The id below which nothing from this sender waits unclaimed; 0 if unknown. Without it, the check for older
   * deliveries would scan the dead rows that a long snapshot retains.
   */
  readonly insertLeaseFloor: number
  /**
   * The epoch of the recipient's announced session on another shard, for a remote lease; 0 for none. It is not checked,
   * because a lease of a past epoch is free to claim.
   */
  readonly remoteLeaseEpoch: number
  readonly terms: Uint8Array | null
  /**
   * When the append becomes due, according to the database clock; 0 if it isn't delayed. A delayed append is not leased
   * on insert.
   */
  readonly notBeforeMs: Millis
  readonly body: SharedBody | null
}

/** The sealed body of a broadcast. Each envelope contains the body's key and hash. */
export interface SharedBody {
  readonly bodyId: string
  readonly bytes: Uint8Array
  readonly record?: MessageRecord
  /** The members that have a box in a pool message; no other receives it. */
  readonly readers?: readonly PeerNo[]
}

export interface MessageRecord {
  readonly spaceId: SpaceId
  readonly record: Uint8Array
}

export type AppendOutcome =
  /**
   * `isExpected`: whether this shard has stored everything from the sender since its last append or since it opened the
   * sender's session.
   */
  | { readonly status: 'stored'; readonly id: DeliveryId; readonly isLeased: boolean; readonly isExpected: boolean }
  | { readonly status: 'duplicate' }
  | { readonly status: 'id_reused' }
  | { readonly status: 'unknown_recipient' }
  | { readonly status: 'delay_too_long' }
  | { readonly status: 'away' }

export interface Committed {
  readonly outcomes: readonly AppendOutcome[]
  readonly enqueuedAtMs: Millis
}

/** Requests up to `limit` deliveries for a session. The delivery that reaches `limitBytes` is the last one. */
export interface Want {
  readonly session: SessionRef
  readonly limit: number
  readonly limitBytes: number
  readonly ids: IdRange
  readonly priorityMax: number
  /** The virtual time of each priority; the priority with the lowest time is served first. */
  readonly virtualTimes: VirtualTimes
  /** The last collected id of each block. Remote leases outside these blocks are claimed. */
  readonly collected: readonly number[]
}

/**
 * Requests the deliveries that other shards leased to this session on insert. The queue does not record a collect, so
 * `ids` must start after the last collected delivery.
 */
export interface RemoteWant {
  readonly session: SessionRef
  readonly limit: number
  readonly limitBytes: number
  readonly ids: IdRange
}

/** `hasMore`: whether a limit was reached, or only a claim can take the next delivery. */
export type RemoteClaimed =
  | { readonly status: 'collected'; readonly deliveries: readonly Delivery[]; readonly hasMore: boolean }
  | { readonly status: 'stale' }

/**
 * The number of unsettled attempts after which a delivery may crash its recipient. It is then pushed alone, so that a
 * broken connection proves that it was the cause.
 */
export const ALONE_AFTER_ATTEMPTS = 5

export const PRIORITY_MAX = 2
export const NO_VIRTUAL_TIMES: VirtualTimes = [0, 0, 0]

/** The cost of a delivery in weighted fair queueing, by priority, so that no priority starves. */
export const PRIORITY_COSTS = [1, 4, 16] as const
export type VirtualTimes = readonly [number, number, number]

export interface IdRange {
  readonly from: number
  readonly to: number
}
export const ANY_ID: IdRange = { from: 0, to: Number.MAX_SAFE_INTEGER }

/** Receipt ids are above all blocks. The 2^36 blocks below last two years at a thousand per second. */
export const RECEIPT_IDS_FROM = 2 ** 52

export interface Delivery {
  readonly id: DeliveryId
  readonly envelopeId: EnvelopeId
  readonly sender: PeerKey
  readonly priority: number
  readonly attempt: number
  readonly enqueuedAtMs: Millis
  readonly envelope: Uint8Array
  readonly terms: Uint8Array | null
  readonly body: Uint8Array | null
}

/** A delivery that left the queue unsettled and was not reported to its recipient. */
export interface Lost {
  readonly id: DeliveryId
  readonly envelopeId: EnvelopeId
  readonly sender: PeerKey
  readonly reason: Death
}

/**
 * The result of one want. `stale`: another shard has the session, or the session has a newer epoch. `locked`: another
 * statement held the session's row; repeat the want.
 *
 * `hasMore`: whether a limit was reached, or another statement settled or changed a delivery that this claim had
 * picked. In the second case, the claim returns less than its limit while more waits.
 */
export type Claimed =
  | { readonly status: 'claimed'; readonly deliveries: readonly Delivery[]; readonly hasMore: boolean }
  | { readonly status: 'stale' }
  | { readonly status: 'locked' }
  | { readonly status: 'away' }

/** The number of one sender's deliveries that wait for a recipient, without receipts. */
export interface SenderBacklog {
  readonly sender: PeerNo
  readonly count: number
  readonly bytes: number
}

/** A pool as the database stores it: a recipient whose deliveries each go to one member. */
export interface PoolEntry {
  readonly meshId: MeshId
  readonly poolId: PoolId
  readonly pool: PeerNo
  readonly epoch: number
  /** One item for each key of each member. */
  readonly members: readonly { readonly peer: PeerNo; readonly peerKey: PeerKey }[]
}

export interface PoolSlot {
  readonly member: PeerNo
  /** The epoch with which the session opened, which a fence does not change. */
  readonly epoch: number
  readonly priorityMax: number
}

/** Requests deliveries for the free members of one pool on one shard, in the order in which they are served. */
export interface PoolWant {
  readonly meshId: MeshId
  readonly pool: PeerNo
  readonly slots: readonly PoolSlot[]
  readonly virtualTimes: VirtualTimes
}

/** The result of a pool want. `locked`: another statement is assigning deliveries of this pool; repeat the want. */
export type PoolClaimed =
  | {
      readonly status: 'claimed'
      /** At most one delivery per slot, with all its boxes. */
      readonly dealt: readonly { readonly slot: number; readonly delivery: Delivery }[]
      /** The slots whose peers are not members of the pool. */
      readonly strangers: readonly number[]
      /** Whether another statement took a picked delivery, in which case more may wait for empty slots. */
      readonly hasMore: boolean
    }
  | { readonly status: 'locked' }

/** From which senders a user's devices accept mail. */
export interface Consent {
  readonly policy: ConsentPolicy
  readonly named: readonly PeerNo[]
  readonly version: number
}

export const OPEN: Consent = { policy: 'open', named: [], version: 0 }

export interface Member {
  readonly meshId: MeshId
  readonly peer: PeerNo
  readonly peerKey: PeerKey
  readonly user: PeerNo
  readonly isRevoked: boolean
  /** The member's session epoch at the lookup, which the statement that opens a session repeats. */
  readonly sessionEpoch: number
  readonly consent: Consent | null
  readonly lineage?: Lineage
  /** The member's key binding, if it is due for renewal. */
  readonly dueBinding?: KeyBindingEntry
}

/**
 * The lineage of a mesh that moved here. Its peers still see their former cell's incarnation, because they would
 * otherwise resend messages, until this cell's own one changes.
 */
export interface Lineage {
  readonly incarnation: string
  readonly cameIn: string
}
