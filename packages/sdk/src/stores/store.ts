/**
 * Defines the data that a peer stores beyond its process: unanswered posts, the settled messages of each sender, and
 * the newest box key epochs and statements. A store does not interpret records. The engine requests the write of a batch, and
 * continues when the reply comes.
 */
import type { ProofKind, StreamId } from '@sealpost/identity'
import type { Priority } from '@sealpost/protocol'
import {
  type DeliveryId,
  type EnvelopeId,
  type GroupId,
  type MeshId,
  type Millis,
  type PeerKey,
  withResolvers,
} from '@sealpost/std'
import type { KnownAddresses } from '../connection/addresses.ts'
import { SealpostError } from '../errors.ts'
import type { GroupMessageTerms, OutgoingTerms } from '../outbox/lane.ts'
import type { SentMessage } from '../sent/sent-states.ts'

/**
 * A store. It belongs to one peer, and to one process at a time.
 * @throws SealpostError from every method: `store_failed` if the disk or the platform refuses a request, and for every
 * later request
 */
export interface PeerStore {
  /** Returns all records, in any order. Called once, before the first `write`. */
  load(): Promise<StoreRecord[]>
  /**
   * Stores the whole batch or nothing. Resolves once the batch would survive a power loss. The next call is made only
   * after that, so changes that accumulate in the meantime form one batch. Records and their bytes are never changed
   * afterwards. The former versions of records whose key begins with `SECRET_PREFIX` should soon be unreadable.
   */
  write(changes: readonly StoreChange[]): Promise<void>
  /** Lets another process open the store. Called once, after the last reply. */
  close(): Promise<void>
}

/**
 * The prefix of the keys of *secret* records. Their former versions must not be readable from a stolen disk. A file
 * store erases a version at most one second after a batch has replaced or deleted it, when the store is closed, and
 * when it is opened next. A browser's database gives no such guarantee.
 */
export const SECRET_PREFIX = 'secret/'

export interface StoreChange {
  readonly key: string
  readonly record: StoreRecord | null
}

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
export type SecrecyRecord = LaneRatchetRecord | RatchetPeerRecord | PrekeysRecord

/** The ratchet of a lane. Its bytes are secret. */
export interface LaneRatchetRecord {
  readonly kind: 'ratchet'
  readonly peer: PeerKey
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

/** The facts that a peer must not forget: its records of them at the start, and a way to store more. */
export interface SeenStore {
  /** Stored records, of this class and others. */
  readonly records: readonly StoreRecord[]
  /** Stores a record, then calls `then`. Without a store, calls it immediately. */
  readonly keep: (key: string, record: SeenRecord | HeadRecord, then?: () => void) => void
}

const FORMAT = 1
const OWNER_KEY = 'owner'

/**
 * Loads the records of this peer, stored under its current identity key or a former one. Claims an empty store.
 * @throws SealpostError `store_foreign`
 */
export async function loadStore(
  store: PeerStore,
  owner: Pick<OwnerRecord, 'meshId' | 'peerKey'>,
  formerKeys: readonly PeerKey[] = [],
): Promise<StoreRecord[]> {
  const records = await store.load()
  const known = records.find((record) => record.kind === 'owner')
  const isFormer = known?.format === FORMAT && known.meshId === owner.meshId && formerKeys.includes(known.peerKey)
  if (!known || isFormer) await store.write([{ key: OWNER_KEY, record: { kind: 'owner', format: FORMAT, ...owner } }])
  else if (known.format !== FORMAT || known.meshId !== owner.meshId || known.peerKey !== owner.peerKey)
    throw new SealpostError('store_foreign', 'This store belongs to another peer, mesh or version.')
  return records
}

/** The store of an engine: its records at the start, and a way to write changes. */
export interface EngineStore {
  readonly records: readonly StoreRecord[]
  /** Writes the changes and later calls `storeWritten` or `storeFailed`. The engine has at most one write in flight. */
  write(changes: StoreChange[]): void
}

/**
 * Batches changes for the store: while one batch is written, new changes queue for the next one, so that one sync
 * serves many messages. Pure and synchronous.
 */
export class StoreWriter {
  readonly #keep: (changes: StoreChange[]) => void
  /** The last change of each key. Records are built when the batch is written. */
  #changes = new Map<string, (() => StoreRecord) | null>()
  #waiters: (() => void)[] = []
  /** The callers of `whenWritten` for the batch in flight; null if there is none. */
  #underWay: (() => void)[] | null = null

  /** `keep` requests a write. Afterwards, the owner calls `kept` unless the write failed. */
  constructor(keep: (changes: StoreChange[]) => void) {
    this.#keep = keep
  }

  get isIdle(): boolean {
    return this.#underWay === null && this.#changes.size === 0
  }

  put(key: string, record: () => StoreRecord, then?: () => void): void {
    this.#changes.set(key, record)
    if (then) this.#waiters.push(then)
  }

  remove(key: string): void {
    this.#changes.set(key, null)
  }

  /** Calls `then` once everything that was requested so far is stored; immediately if it already is. */
  whenWritten(then: () => void): void {
    if (this.#changes.size > 0) this.#waiters.push(then)
    else if (this.#underWay) this.#underWay.push(then)
    else then()
  }

  flush(): void {
    if (this.#underWay || this.#changes.size === 0) return
    const batch = [...this.#changes].map(([key, make]) => ({ key, record: make ? make() : null }))
    this.#underWay = this.#waiters
    this.#changes = new Map()
    this.#waiters = []
    this.#keep(batch)
  }

  written(): void {
    const waiters = this.#underWay
    this.#underWay = null
    for (const waiter of waiters ?? []) waiter()
  }
}

/** Returns a memory in the engine's store, or without one. */
export const seenStoreOf = (writer: StoreWriter | null, records: readonly StoreRecord[] = []): SeenStore => ({
  records,
  keep: (key, record, then) => (writer ? writer.put(key, () => record, then) : then?.()),
})

/** Writes to a store in the background, one batch at a time. */
export class WriteBehindStore {
  readonly #store: PeerStore
  readonly #writer: StoreWriter
  readonly #failed = withResolvers<void>()
  #failure: SealpostError | null = null

  constructor(store: PeerStore) {
    this.#store = store
    this.#writer = new StoreWriter((changes) => {
      void store.write(changes).then(
        () => {
          this.#writer.written()
          this.#writer.flush()
        },
        (cause) => this.#fail(cause),
      )
    })
  }

  put(key: string, record: StoreRecord): void {
    this.#writer.put(key, () => record)
    this.#flush()
  }

  remove(key: string): void {
    this.#writer.remove(key)
    this.#flush()
  }

  /** Resolves once all earlier writes are stored. @throws SealpostError `store_failed` */
  async settled(): Promise<void> {
    if (!this.#failure) {
      const kept = new Promise<void>((resolve) => this.#writer.whenWritten(resolve))
      this.#flush()
      await Promise.race([kept, this.#failed.promise])
    }
    if (this.#failure) throw this.#failure
  }

  /** Closes the store after the earlier writes. @throws SealpostError `store_failed` */
  async close(): Promise<void> {
    try {
      await this.settled()
    } finally {
      await this.#store.close()
    }
  }

  /** Writes in a microtask, so that changes from the same reply share a write. */
  #flush(): void {
    queueMicrotask(() => {
      if (!this.#failure) this.#writer.flush()
    })
  }

  #fail(cause: unknown): void {
    this.#failure =
      cause instanceof SealpostError
        ? cause
        : new SealpostError('store_failed', 'The store refused the write.', { cause })
    this.#failed.resolve()
  }
}
