/**
 * Defines the types that engine and queue share, since they never import one another. All times are the database's: no
 * broker's clock judges a lease, an expiry or an age.
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
  /** The member that holds a pool's delivery. A statement has no effect if another member holds it. */
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

/** Releases a pool's delivery to the other members. `epoch`: see `PoolSlot`. */
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
  /** The member's current key; null if there is no such member. */
  readonly peerKey: PeerKey | null
  readonly isRevoked: boolean
  /** Whether another shard has since opened a session of this peer. */
  readonly isElsewhere: boolean
  /** Whether the mesh is moving to another cell, or has moved. */
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
   * The epoch of the recipient's session on this shard, to lease the delivery on insert; 0 leaves it to a claim. To
   * preserve the order (P6), the queue refuses the lease, but not the envelope, if a delivery from this sender waits
   * unclaimed for this recipient.
   */
  readonly insertLeaseEpoch: number
  /**
   * The id from which that check begins. Nothing from this sender waits unclaimed for this recipient under a lower
   * delivery id. 0 checks everything. Without a floor, the check scans the dead rows that a long snapshot keeps.
   */
  readonly insertLeaseFloor: number
  /**
   * The epoch of the recipient's session on another shard, as that shard announced it, to lease the delivery to it; 0
   * leaves it to a claim. The epoch is not checked, because under a past epoch a delivery is free.
   */
  readonly remoteLeaseEpoch: number
  readonly terms: Uint8Array | null
  /** The time until which it is held, by the database clock; 0 if it is not. While held, it gets no lease on insert. */
  readonly notBeforeMs: Millis
  readonly body: SharedBody | null
}

/** The sealed body of a broadcast. Each envelope contains its key and its hash. */
export interface SharedBody {
  readonly bodyId: string
  readonly bytes: Uint8Array
  readonly record?: MessageRecord
  /** The members of a pool with a box in the envelope. No other member receives it. */
  readonly readers?: readonly PeerNo[]
}

export interface MessageRecord {
  readonly spaceId: SpaceId
  readonly record: Uint8Array
}

export type AppendOutcome =
  /**
   * `isExpected`: all deliveries from this sender since this shard last stored one, or opened the sender's session,
   * came through this shard.
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

/** Requests up to `limit` more deliveries for a session, up to the one with which they reach `limitBytes`. */
export interface Want {
  readonly session: SessionRef
  readonly limit: number
  readonly limitBytes: number
  readonly ids: IdRange
  readonly priorityMax: number
  /** The virtual time of each priority; the priority with the lowest time is served first. */
  readonly virtualTimes: VirtualTimes
  /** The last collected id of each block. Other remote leases of this session are claimed. */
  readonly collected: readonly number[]
}

/**
 * Requests the deliveries that other shards leased to this session on insert. A collect only reads, and the queue does
 * not record it: `ids` must start after everything that was collected.
 */
export interface RemoteWant {
  readonly session: SessionRef
  readonly limit: number
  readonly limitBytes: number
  readonly ids: IdRange
}

/** `hasMore`: a limit was reached, or the next delivery can only be taken by a claim. */
export type RemoteClaimed =
  | { readonly status: 'collected'; readonly deliveries: readonly Delivery[]; readonly hasMore: boolean }
  | { readonly status: 'stale' }

/**
 * A delivery with this many unsettled attempts may crash its recipient. It is claimed and pushed alone: if the
 * connection breaks again, this delivery was the cause, and a failed attempt is counted for it only.
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

/** Receipt ids are above all blocks: 2^36 blocks remain below, two years at a thousand per second. */
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
 * The result of one want. `stale`: the session is served elsewhere or under a newer epoch. `locked`: another statement
 * held the session's row; repeat the want.
 *
 * `hasMore`: a limit was reached, or another statement settled or changed a delivery that this claim had picked. The
 * number of deliveries does not show the second case: the claim returns less than its limit while more waits.
 */
export type Claimed =
  | { readonly status: 'claimed'; readonly deliveries: readonly Delivery[]; readonly hasMore: boolean }
  | { readonly status: 'stale' }
  | { readonly status: 'locked' }
  | { readonly status: 'away' }

/** The waiting deliveries of one sender for one recipient, delayed ones included and receipts excluded. */
export interface SenderBacklog {
  readonly sender: PeerNo
  readonly count: number
  readonly bytes: number
}

/** A pool in the database, which is a recipient whose deliveries each go to one member. */
export interface PoolEntry {
  readonly meshId: MeshId
  readonly poolId: PoolId
  readonly pool: PeerNo
  readonly epoch: number
  /** A member that rotated its key is listed with each of its keys. */
  readonly members: readonly { readonly peer: PeerNo; readonly peerKey: PeerKey }[]
}

export interface PoolSlot {
  readonly member: PeerNo
  /** The epoch with which its session opened; a fence does not change it. */
  readonly epoch: number
  readonly priorityMax: number
}

/** The free members of one pool on one shard; the first is served first. */
export interface PoolWant {
  readonly meshId: MeshId
  readonly pool: PeerNo
  readonly slots: readonly PoolSlot[]
  readonly virtualTimes: VirtualTimes
}

/** The result of a pool want. `locked`: another statement is dealing in this pool; repeat the want. */
export type PoolClaimed =
  | {
      readonly status: 'claimed'
      /** At most one delivery for each slot. Its envelope contains the boxes of all its readers. */
      readonly dealt: readonly { readonly slot: number; readonly delivery: Delivery }[]
      /** The slots of peers that are not members of the pool. */
      readonly strangers: readonly number[]
      /** Another statement took a delivery picked for a slot, so more may wait for the slots that got nothing. */
      readonly hasMore: boolean
    }
  | { readonly status: 'locked' }

/** A user's rule about which senders all its devices accept. */
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
  /** The epoch of its session at the lookup; an opening names it. */
  readonly sessionEpoch: number
  readonly consent: Consent | null
  readonly lineage?: Lineage
}

/**
 * The lineage of a mesh that moved here from another cell. Its peers keep receiving the incarnation that they had
 * there; otherwise each would resend its last messages. This ends when the cell's own incarnation changes.
 */
export interface Lineage {
  readonly incarnation: string
  readonly cameIn: string
}
