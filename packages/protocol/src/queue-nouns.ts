/**
 * What engine and queue say to each other. The two never import one another; they share these nouns.
 * Times are the database's: a lease, an expiry or an age is never judged by a broker's clock.
 */
import type { DeliveryId, EnvelopeId, MeshId, Millis, PeerKey, PeerNo, PoolId, SpaceId } from '@sealpost/std'
import type { ConsentPolicy } from './frames.ts'
import type { Death } from './terms.ts'

/** Where a delivery stands, and the key by which it is settled. */
export interface DeliveryRef {
  readonly meshId: MeshId
  readonly recipient: PeerNo
  /** The place in `PRIORITIES`. */
  readonly priority: number
  readonly id: DeliveryId
  /** Its recipient is a pool, and this member has it: what another one has now is not meant. */
  readonly holder?: PeerNo
}

/** The order in which deliveries are pushed: by priority, and within it that of each sender's mail. */
export const byPlace = (a: Pick<DeliveryRef, 'priority' | 'id'>, b: Pick<DeliveryRef, 'priority' | 'id'>): number =>
  a.priority - b.priority || a.id - b.id

/** A delivery its recipient is done with. */
export interface Settle extends DeliveryRef {
  /** Its sender, when that wants to hear of it. */
  readonly receiptTo?: PeerKey | null
}

/** A delivery its recipient will not take, for good. */
export interface Reject {
  readonly delivery: DeliveryRef
  readonly epoch: number
  readonly reason: string
}

/** A delivery whose lease is to go on. */
export interface Extension {
  readonly delivery: DeliveryRef
  readonly epoch: number
  readonly forMs: Millis
}

/** A delivery given back for another attempt, by the session that held it under this epoch. */
export interface Retry {
  readonly delivery: DeliveryRef
  readonly epoch: number
  readonly afterMs: Millis
}

/** A pool's delivery whose holder leaves it to the others. `epoch`: as of `PoolSlot`. */
export interface Release {
  readonly delivery: DeliveryRef
  readonly epoch: number
}

/** A live session as its shard believes it to be. A statement that names a stale epoch changes nothing. */
export interface SessionRef {
  readonly meshId: MeshId
  readonly peer: PeerNo
  readonly epoch: number
}

/** Whether a session may go on, as far as the database knows. */
export interface SessionStatus {
  /** The key that the member has now; `null`: there is no such member. */
  readonly peerKey: PeerKey | null
  readonly isRevoked: boolean
  /** Another shard has opened one of this peer since. */
  readonly isElsewhere: boolean
  /** The mesh is on its way to another cell, or lives there. */
  readonly isAway?: boolean
}

/** One envelope to store for one recipient. */
export interface Append {
  readonly meshId: MeshId
  readonly sender: PeerNo
  readonly recipient: PeerNo
  readonly envelopeId: EnvelopeId
  readonly priority: number
  readonly ttlSeconds: number
  readonly envelope: Uint8Array
  /**
   * The epoch of the recipient's session on this shard, to store the delivery with its lease already given ("leased at
   * birth"); 0 to leave it to a claim. The queue refuses the lease, not the envelope, when something of this sender waits
   * unclaimed for this recipient, since order forbids it (P6).
   */
  readonly insertLeaseEpoch: number
  /**
   * Where that look begins: nothing of this sender waits unclaimed for this recipient under a lower delivery id. 0: look
   * everywhere. Without it a look walks over the dead rows that a long snapshot keeps.
   */
  readonly insertLeaseFloor: number
  /**
   * The epoch of the recipient's session on another shard, as that has said: to store the delivery leased to it, for it to
   * collect; 0 to leave it to a claim. It is not checked, because under an epoch that has passed a delivery is free.
   */
  readonly remoteLeaseEpoch: number
  /** As `encodeTerms` writes them; null: none. */
  readonly terms: Uint8Array | null
  /** Kept out of the queue until then, by the database clock; 0: not kept. Then there is no birth lease. */
  readonly notBeforeMs: Millis
  /** What it shares with others of its broadcast; stored once. */
  readonly body: SharedBody | null
}

/** The sealed body of a broadcast. Each of its envelopes holds the key to it, and its hash. */
export interface SharedBody {
  /** 64 hex digits, chosen by the sender: the BLAKE2b-256 of the bytes. */
  readonly bodyId: string
  readonly bytes: Uint8Array
  /** It becomes an event of this space, in the commit of its envelopes. */
  readonly record?: MessageRecord
  /** In a pool: the members for whom its envelope has a box. Nobody else is given it. */
  readonly readers?: readonly PeerNo[]
}

export interface MessageRecord {
  readonly spaceId: SpaceId
  readonly record: Uint8Array
}

export type AppendOutcome =
  /** `isExpected`: nobody else stored anything of this sender since this shard did, or since its session opened here. */
  | { readonly status: 'stored'; readonly id: DeliveryId; readonly isLeased: boolean; readonly isExpected: boolean }
  | { readonly status: 'duplicate' }
  | { readonly status: 'id_reused' }
  | { readonly status: 'unknown_recipient' }
  /** It would expire before it is due. */
  | { readonly status: 'delay_too_long' }
  /** Its mesh is on its way to another cell, or lives there. */
  | { readonly status: 'away' }

/** What one commit did: an outcome for each append, in their order. */
export interface Committed {
  readonly outcomes: readonly AppendOutcome[]
  /** The time given to the stored deliveries, by the database clock. */
  readonly enqueuedAtMs: Millis
}

/** "This session can take up to `limit` more deliveries, up to the one with which they reach `limitBytes`." */
export interface Want {
  readonly session: SessionRef
  readonly limit: number
  readonly limitBytes: number
  /** The delivery ids that are asked for, both ends included; `ANY_ID` for all. */
  readonly ids: IdRange
  /** Nothing less urgent is asked for. */
  readonly priorityMax: number
  /** Of each priority, how far it has had its turn: the lower is served before. */
  readonly virtualTimes: VirtualTimes
  /** What this session has collected: of each block the last id. The rest of what was leased to it elsewhere is claimed. */
  readonly collected: readonly number[]
}

/**
 * "This session can take what other shards leased to it at birth, up to these limits." It is read and nothing else; the
 * queue does not know that it was, so the caller starts `ids` behind all that it has.
 */
export interface RemoteWant {
  readonly session: SessionRef
  readonly limit: number
  readonly limitBytes: number
  /** Of one block. */
  readonly ids: IdRange
}

/** `hasMore`: the limits were reached, or something stands between that only a claim may take. */
export type RemoteClaimed =
  | { readonly status: 'collected'; readonly deliveries: readonly Delivery[]; readonly hasMore: boolean }
  | { readonly status: 'stale' }

/**
 * A delivery that was attempted so often and not settled may end the process of its recipient. It is claimed and pushed
 * alone: when the recipient's connection breaks off again, this delivery was the cause, and gets a strike. The healthy
 * deliveries that were with it before get none.
 */
export const ALONE_AFTER_ATTEMPTS = 5

export const PRIORITY_MAX = 2
export const NO_VIRTUAL_TIMES: VirtualTimes = [0, 0, 0]

/** Weighted fairness: a delivery of a priority costs its place here, so that none of them starves. */
export const PRIORITY_COSTS = [1, 4, 16] as const
export type VirtualTimes = readonly [number, number, number]

export interface IdRange {
  readonly from: number
  readonly to: number
}
export const ANY_ID: IdRange = { from: 0, to: Number.MAX_SAFE_INTEGER }

/** Receipts have ids of their own, above all blocks: 2^36 blocks are left below, two years of a thousand in a second. */
export const RECEIPT_IDS_FROM = 2 ** 52

export interface Delivery {
  readonly id: DeliveryId
  readonly envelopeId: EnvelopeId
  readonly sender: PeerKey
  readonly priority: number
  /** 1 for the first claim. */
  readonly attempt: number
  readonly enqueuedAtMs: Millis
  readonly envelope: Uint8Array
  readonly terms: Uint8Array | null
  /** Of a broadcast. */
  readonly body: Uint8Array | null
}

/** What left the queue without being settled, and its recipient was not told of yet. */
export interface Lost {
  readonly id: DeliveryId
  readonly envelopeId: EnvelopeId
  readonly sender: PeerKey
  readonly reason: Death
}

/**
 * The answer to one want. `stale`: the session is served elsewhere or under a newer epoch. `locked`: another statement
 * held the session's row, ask again.
 *
 * `hasMore`: the limits were reached, or another statement settled or changed a delivery that this claim had picked. The
 * number of deliveries alone does not show the second case: the claim comes back short of its limit while more waits.
 */
export type Claimed =
  | { readonly status: 'claimed'; readonly deliveries: readonly Delivery[]; readonly hasMore: boolean }
  | { readonly status: 'stale' }
  | { readonly status: 'locked' }
  /** As of an append. */
  | { readonly status: 'away' }

/** What waits for one recipient, of one sender, delayed mail included and receipts not. */
export interface Measured {
  /** A user; what its devices sent counts as its own. */
  readonly sender: PeerNo
  readonly count: number
  readonly bytes: number
}

/** A pool as the database has it: a recipient whose deliveries go to one of its members each. */
export interface PoolEntry {
  readonly meshId: MeshId
  readonly poolId: PoolId
  /** Its number as a recipient. */
  readonly pool: PeerNo
  /** Of the owner's newest statement. */
  readonly epoch: number
  /** One that has turned to another key is there with each of its keys. */
  readonly members: readonly { readonly peer: PeerNo; readonly peerKey: PeerKey }[]
}

/** "This member can take one more." */
export interface PoolSlot {
  readonly member: PeerNo
  /** With which its session opened; a fence does not change it. */
  readonly epoch: number
  /** Nothing less urgent is given to it. */
  readonly priorityMax: number
}

/** Free members of one pool on one shard; the first is served first. */
export interface PoolWant {
  readonly meshId: MeshId
  readonly pool: PeerNo
  readonly slots: readonly PoolSlot[]
  /** As of a `Want`. */
  readonly virtualTimes: VirtualTimes
}

/** The answer to a want. `locked`: another statement is dealing in this pool, ask again. */
export type PoolClaimed =
  | {
      readonly status: 'claimed'
      /** One delivery for each slot at most. Its envelope holds the boxes of all its readers. */
      readonly dealt: readonly { readonly slot: number; readonly delivery: Delivery }[]
      /** Slots of peers that the pool does not have. */
      readonly strangers: readonly number[]
      /** Another statement took what was picked for a slot: there may be something for slots that got nothing. */
      readonly hasMore: boolean
    }
  | { readonly status: 'locked' }

/** Whom a user takes mail from, at each of its devices. */
export interface Consent {
  readonly policy: ConsentPolicy
  /** Those blocked where the policy is `open`, those allowed where it is `contacts`. */
  readonly named: readonly PeerNo[]
  /** Grows with each change. */
  readonly version: number
}

export const OPEN: Consent = { policy: 'open', named: [], version: 0 }

export interface Member {
  readonly meshId: MeshId
  readonly peer: PeerNo
  readonly peerKey: PeerKey
  /** The user whose device it is; the peer itself for one that is nobody's. */
  readonly user: PeerNo
  readonly isRevoked: boolean
  /** Of its session when it was looked up; an opening names it. */
  readonly sessionEpoch: number
  /** Null: it was not looked up. */
  readonly consent: Consent | null
  readonly lineage?: Lineage
}

/**
 * Of a mesh that came from another cell with all it had. Its peers go on hearing of the incarnation that they knew there,
 * or each would say again what it said last; but only while the cell's own is still the one in which it came.
 */
export interface Lineage {
  readonly incarnation: string
  readonly cameIn: string
}
