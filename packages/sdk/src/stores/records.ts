/** Defines the records of a peer's store. A store does not interpret them. */
import type { ProofKind, StreamId } from '@sealpost/identity'
import type { Priority } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, GroupId, MeshId, Millis, PeerKey } from '@sealpost/std'
import type { KnownAddresses } from '../connection/addresses.ts'
import type { GroupMessageTerms, OutgoingTerms } from '../outbox/lane.ts'
import type { SentMessage } from '../sent/sent-states.ts'

export type StoreRecord =
  | OwnerRecord
  | OutboxRecord
  | SharedBodyRecord
  | InboxRecord
  | SeenRecord
  | SpaceRecord
  | AddressesRecord
  | SendKeyRecord
  | SentRecord
  | ProofRecord
  | RecoveriesRecord
  | HeadRecord
  | SecrecyRecord

/** An idempotency key (`outbox/once.ts`). Only stores of the class `OnceStore` contain such records. */
export interface SendKeyRecord {
  readonly kind: 'sendKey'
  readonly key: string
  readonly fingerprint: string
  readonly outboxNo: number
  readonly envelopeId: EnvelopeId | null
  readonly atMs: Millis
}

/** The owner of the store. Sealed envelopes are valid for one sender in one mesh. */
export interface OwnerRecord {
  readonly kind: 'owner'
  readonly format: number
  readonly meshId: MeshId
  readonly peerKey: PeerKey
}

interface Outgoing {
  /** Ascends in the order of the posts, across all processes of the peer. */
  readonly outboxNo: number
  readonly terms: OutgoingTerms
}

/** A post that is not sealed yet. Its body is stored unencrypted. */
export interface WaitingRecord extends Outgoing {
  readonly kind: 'waiting'
  readonly bytes: Uint8Array
}

/** A sealed post, which may have been sent. A resend consists of these bytes. */
export interface SealedRecord extends Outgoing {
  readonly kind: 'sealed'
  readonly envelopeId: EnvelopeId
  readonly admittedAtMs: Millis
  readonly bytes: Uint8Array
}

export type OutboxRecord = WaitingRecord | SealedRecord

/** The body of a message to a group. The terms of its posts contain its id. */
export interface SharedBodyRecord {
  readonly kind: 'group'
  readonly groupId: GroupId
  readonly epoch: number
  readonly bodyId: string
  readonly terms: GroupMessageTerms
  readonly isSecond: boolean
  /** Members for whom the message must be sealed again. */
  readonly owed: readonly PeerKey[]
  /** The length of the history record; 0 or absent if there is none. */
  readonly recordBytes?: number
  /** The ticket, then the history record, then the sealed body. */
  readonly bytes: Uint8Array
}

export interface SettledRangesRecord {
  readonly kind: 'mark'
  readonly sender: PeerKey
  readonly streamId: StreamId
  /** Ascends in the order in which the streams were last used. */
  readonly rank: number
  /** Alternating first and last numbers of the ranges, ascending and inclusive. */
  readonly settled: readonly number[]
}

export interface SettledIdRecord {
  readonly kind: 'loose'
  readonly sender: PeerKey
  readonly envelopeId: EnvelopeId
  readonly rank: number
}

/** A rejected message, which another record (the settled ranges, or `loose`) marks as settled. */
export interface RejectedRecord {
  readonly kind: 'rejected'
  readonly sender: PeerKey
  readonly envelopeId: EnvelopeId
  /** The rejected delivery. A redriven message is a different delivery. */
  readonly deliveryId: DeliveryId
  readonly reason: string
  readonly rank: number
}

export type InboxRecord = SettledRangesRecord | SettledIdRecord | RejectedRecord

/** The highest box key epoch that a peer's signature has authenticated (`key-epochs.ts`). */
export interface KeyEpochRecord {
  readonly kind: 'keyEpoch'
  readonly peer: PeerKey
  readonly boxEpoch: number
}

/** What the signed statements of others have proven, so that no later process accepts an older statement. */
export type SeenRecord = KeyEpochRecord | StatementRecord | RemovalRecord | SuccessionRecord

/** The newest statement of a group or a pool. */
export interface StatementRecord {
  readonly kind: 'statement'
  readonly of: 'group' | 'pool'
  readonly bytes: Uint8Array
}

/** The device was removed by a signature of this peer, which counts only if it is the device's user. */
export interface RemovalRecord {
  readonly kind: 'removal'
  readonly device: PeerKey
  readonly by: PeerKey
}

/** The successor of an identity key. */
export interface SuccessionRecord {
  readonly kind: 'succession'
  readonly former: PeerKey
  readonly successor: PeerKey
}

/** What a peer that exchanges heads keeps (`heads/heads.ts`). */
export type HeadRecord = LaneHeadRecord | HeadsBeginRecord

/** The last message in a lane that the broker has acknowledged. */
export interface LaneHeadRecord {
  readonly kind: 'laneHead'
  readonly to: PeerKey
  readonly priority: Priority
  readonly streamId: StreamId
  readonly seq: number
  readonly sentAtMs: Millis
}

/** When this store began to contain each received stream. */
export interface HeadsBeginRecord {
  readonly kind: 'headsBegin'
  readonly atMs: Millis
}

/** A fact about a space (`state/entry-verifier.ts`): its terms, its keys, or the newest entry of a key. */
export type SpaceRecord = SpacePinRecord | SpaceKeysRecord | KnownEntryRecord

/** What proves the members of the mesh (`members/member-proofs.ts`). Only a store of its own contains such records. */
export type ProofRecord = RootRecord | MemberProofRecord | RevocationRecord | CheckpointRecord

/** What a peer with forward secrecy stores (`forward/ratchet-lanes.ts`). */
export type SecrecyRecord = LaneRatchetRecord | RatchetPeerRecord | PrekeysRecord | SenderKeysRecord

/** The ratchet of a lane. Its bytes are secret. */
export interface LaneRatchetRecord {
  readonly kind: 'ratchet'
  readonly peer: PeerKey
  readonly lane: number
  readonly bytes: Uint8Array
}

/** The sender keys of a peer, for a group and a priority. The bytes are secret. */
export interface SenderKeysRecord {
  readonly kind: 'senderKeys'
  readonly sender: PeerKey
  readonly group: GroupId
  readonly lane: number
  readonly bytes: Uint8Array
}

/** What is known of a peer with whom this one uses ratchets, or may use them. */
export interface RatchetPeerRecord {
  readonly kind: 'ratchetPeer'
  readonly peer: PeerKey
  /** Whether a ratcheted message went in either direction, after which this peer seals no other. */
  readonly isPinned: boolean
  /** When the peer sealed its first ratcheted message, by its clock; null if none was opened. */
  readonly sinceMs: Millis | null
  /** The newest `issuedAtMs` of the peer's prekeys; 0 if none were seen. */
  readonly issuedAtMs: Millis
  /** When the directory had no prekeys of the peer; 0 if it had some. */
  readonly missingAtMs: Millis
}

/** The prekeys of this peer. The bytes are their secrets. */
export interface PrekeysRecord {
  readonly kind: 'prekeys'
  /** The newest statement, in base64url, and what it contains. */
  readonly statement: string
  readonly peerKey: PeerKey
  readonly boxEpoch: number
  readonly issuedAtMs: Millis
  /** When the broker last had this statement; 0 if it was not published. */
  readonly checkedAtMs: Millis
  /** When the broker first had one-time prekeys, or last replaced all of them; absent before. */
  readonly replacedAtMs?: Millis
  /** When keys of messages that did not arrive were last deleted. */
  readonly expiredAtMs: Millis
  readonly bytes: Uint8Array
}

export interface RootRecord {
  readonly kind: 'root'
  readonly root: PeerKey
}

export interface MemberProofRecord {
  readonly kind: 'proof'
  readonly proof: ProofKind
  /** The keys that the statement is about. */
  readonly peers: readonly PeerKey[]
  readonly bytes: Uint8Array
}

export interface RevocationRecord {
  readonly kind: 'revocation'
  readonly number: number
  readonly bytes: Uint8Array
}

/** The newest checkpoint of the mesh's log (`members/mesh-log.ts`). */
export interface CheckpointRecord {
  readonly kind: 'checkpoint'
  readonly size: number
  readonly bytes: Uint8Array
  /** The certificate of the shard that signed it, in base64url; null if the pinned key signed it. */
  readonly certificate: string | null
  /** How often a person has accepted a log that contradicts the one before. */
  readonly accepted: number
}

/** What is known of successors (`users/recovery-book.ts`). Only a store of its own contains such records. */
export type RecoveriesRecord = HeirsRecord | KeyRecoveryRecord | RotatedRecord

export interface HeirsRecord {
  readonly kind: 'heirs'
  readonly bytes: Uint8Array
}

export interface KeyRecoveryRecord {
  readonly kind: 'recovery'
  readonly bytes: Uint8Array
  readonly seenAtMs: Millis
  /** Whether the broker uses the new key. */
  readonly isDone: boolean
  readonly isFollowed: boolean
}

/** A former key has signed its successor itself. */
export interface RotatedRecord {
  readonly kind: 'rotated'
  readonly former: PeerKey
  readonly successor: PeerKey
}

/** The last address of the mesh, possibly in another cell than the application's addresses. */
export interface AddressesRecord extends KnownAddresses {
  readonly kind: 'addresses'
}

/** What is known of a sent message (`sent/sent-log.ts`). Earlier versions stored records without the later fields. */
export interface SentRecord extends Omit<SentMessage, LaterSentField>, Partial<Pick<SentMessage, LaterSentField>> {
  readonly kind: 'sent'
  /** Ascends in the order of the sends. */
  readonly no: number
  readonly outboxNo: number
  readonly contentHash: string
  /** The members of the pool that the message was sent to. */
  readonly poolMembers?: readonly PeerKey[]
}

type LaterSentField = 'sendNo' | 'audience' | 'isRequest' | 'inReplyTo' | 'reply'

interface OfSpace {
  readonly space: string
}

export interface SpacePinRecord extends OfSpace {
  readonly kind: 'space'
  readonly owner: PeerKey
  readonly epoch: number
  readonly groupEpoch: number
  readonly seq: number
  readonly keyEpoch?: number
}

interface SpaceKeysRecord extends OfSpace {
  readonly kind: 'keys'
  /** The group's statement that lists everybody to whom the newest key was given, in base64url. */
  readonly group?: string
  readonly bytes: Uint8Array
}

export interface KnownEntryRecord extends OfSpace {
  readonly kind: 'entry'
  readonly keyHash: string
  readonly revision: number
  /** The key hash, as 64 hex digits. */
  readonly hash: string
  readonly keyEpoch: number
  readonly isDeleted: boolean
  readonly seq: number
}
