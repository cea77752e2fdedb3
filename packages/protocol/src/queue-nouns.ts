/**
 * Defines the types that engine and queue share, since they never import each other. All times follow the database
 * clock: no broker's clock decides about a lease, an expiry or an age.
 */
import type { DeliveryId, EnvelopeId, MeshId, Millis, PeerKey, PeerNo, PoolId, SpaceId } from '@sealpost/std'
import type { ConsentPolicy } from './frames.ts'
import type { Death } from './terms.ts'

export interface DeliveryRef {
  readonly meshId: MeshId
  readonly recipient: PeerNo
  /** The index in `PRIORITIES`. */
  readonly priority: number
  readonly id: DeliveryId
  /**
   * For a delivery of a pool, the member that holds it. A statement has no effect if another member holds the delivery.
   */
  readonly holder?: PeerNo
}

/** Pushes are ordered by priority, then by id. */
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

/** Releases a delivery of a pool to the other members. `epoch`: see `PoolSlot`. */
export interface Release {
  readonly delivery: DeliveryRef
  readonly epoch: number
}

/** A live session as its shard believes it to be. A statement with a stale epoch changes nothing. */
export interface SessionRef {
  readonly meshId: MeshId
  readonly peer: PeerNo
  readonly epoch: number
}

/** Whether a session is still valid, according to the database. */
export interface SessionStatus {
  /** The member's current key; null if the member does not exist. */
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
   * The epoch of the recipient's session on this shard, for a lease on insert. 0 leaves the delivery to a claim. To
   * preserve the order (P6), the queue refuses the lease, but not the envelope, if a delivery from this sender waits
   * unclaimed for this recipient.
   */
  readonly insertLeaseEpoch: number
  /**
   * The id from which that check begins, because nothing from this sender waits unclaimed for this recipient under a
   * lower id. 0 checks everything. Without this lower bound, the check scans the dead rows that a long snapshot
   * retains.
   */
  readonly insertLeaseFloor: number
  /**
   * The epoch of the recipient's session on another shard, as announced by that shard, for a lease to that session. 0
   * leaves the delivery to a claim. The epoch is not checked, because a delivery leased under a past epoch is free to
   * claim.
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
  /** For a message to a pool: the members that have a box in the envelope. No other member receives it. */
  readonly readers?: readonly PeerNo[]
}

export interface MessageRecord {
  readonly spaceId: SpaceId
  readonly record: Uint8Array
}

export type AppendOutcome =
  /**
   * `isExpected`: whether all deliveries from this sender since this shard last stored one, or opened the sender's
   * session, have come through this shard.
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

/** Requests up to `limit` more deliveries for a session. The delivery that reaches `limitBytes` is the last one. */
export interface Want {
  readonly session: SessionRef
  readonly limit: number
  readonly limitBytes: number
  readonly ids: IdRange
  readonly priorityMax: number
  /** The virtual time of each priority; the priority with the lowest time is served first. */
  readonly virtualTimes: VirtualTimes
  /** The last collected id of each block. Remote leases of this session outside these blocks are claimed. */
  readonly collected: readonly number[]
}

/**
 * Requests the deliveries that other shards leased to this session on insert. A collect only reads, and the queue does
 * not record it, so `ids` must start after the last collected delivery.
 */
export interface RemoteWant {
  readonly session: SessionRef
  readonly limit: number
  readonly limitBytes: number
  readonly ids: IdRange
}

/** `hasMore`: whether a limit was reached, or the next delivery can only be taken by a claim. */
export type RemoteClaimed =
  | { readonly status: 'collected'; readonly deliveries: readonly Delivery[]; readonly hasMore: boolean }
  | { readonly status: 'stale' }

/**
 * A delivery with this many unsettled attempts may crash its recipient. It is claimed and pushed alone: if the
 * connection breaks again, this delivery was the cause, and only it counts a failed attempt.
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

/** Receipt ids are above all blocks. 2^36 blocks fit below: enough for two years at a thousand blocks per second. */
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

/** A delivery that left the queue unsettled and was not reported to its recipient yet. */
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
 * picked. The number of deliveries does not show the second case: the claim returns less than its limit while more
 * waits.
 */
export type Claimed =
  | { readonly status: 'claimed'; readonly deliveries: readonly Delivery[]; readonly hasMore: boolean }
  | { readonly status: 'stale' }
  | { readonly status: 'locked' }
  | { readonly status: 'away' }

/** How many deliveries of one sender wait for one recipient, including delayed ones but not receipts. */
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
  /** A member that has rotated its key is listed once with each key. */
  readonly members: readonly { readonly peer: PeerNo; readonly peerKey: PeerKey }[]
}

export interface PoolSlot {
  readonly member: PeerNo
  /** The epoch with which the member's session opened; a fence does not change it. */
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
      /** At most one delivery for each slot. Its envelope contains the boxes of all its readers. */
      readonly dealt: readonly { readonly slot: number; readonly delivery: Delivery }[]
      /** The slots of peers that are not members of the pool. */
      readonly strangers: readonly number[]
      /**
       * Whether another statement took a delivery that was picked for a slot. More deliveries may then wait for the
       * slots that received nothing.
       */
      readonly hasMore: boolean
    }
  | { readonly status: 'locked' }

/** A user's rule for all its devices: from which senders they accept mail. */
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
  /** The epoch of the member's session at the time of the lookup. The statement that opens a session names it. */
  readonly sessionEpoch: number
  readonly consent: Consent | null
  readonly lineage?: Lineage
}

/**
 * The lineage of a mesh that moved here from another cell. Its peers still see the incarnation of their former cell;
 * otherwise each peer would resend its last messages. This ends when this cell's own incarnation changes.
 */
export interface Lineage {
  readonly incarnation: string
  readonly cameIn: string
}
