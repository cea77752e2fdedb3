/**
 * What a peer keeps beyond its process: posts without an answer, what of each sender was settled, and the newest epochs of
 * box keys. A store knows
 * records by their key and nothing of their meaning. It is an effect: the engine asks for a batch of changes to be kept,
 * and continues when the answer comes.
 */
import type { StreamId } from '@sealpost/identity'
import type { DeliveryId, EnvelopeId, GroupId, MeshId, Millis, PeerKey } from '@sealpost/std'
import type { KnownAddresses } from '../connection/addresses.ts'
import { SealpostError } from '../errors.ts'
import type { GroupMessageTerms } from '../groups/group-client.ts'
import type { OutgoingTerms } from '../outbox/lane.ts'

/**
 * One store belongs to one peer, and to one process at a time.
 * @throws SealpostError from every method: `store_failed` when the disk or the platform refuses, and from then on always
 */
export interface PeerStore {
  /** Everything kept, in any order. Called once, before the first `write`. */
  load(): Promise<StoreRecord[]>
  /**
   * Keeps all of the batch or nothing. Resolves when it would survive a loss of power. The next call comes after the
   * answer, so whatever gathers meanwhile is one batch, too. Records and their bytes are never changed afterwards.
   */
  write(changes: readonly StoreChange[]): Promise<void>
  /** Lets another process open it. Called once, after the last answer. */
  close(): Promise<void>
}

export interface StoreChange {
  readonly key: string
  /** Null: it is kept no longer. */
  readonly record: StoreRecord | null
}

export type StoreRecord =
  | OwnerRecord
  | OutboxRecord
  | SharedBodyRecord
  | InboxRecord
  | KeyEpochRecord
  | SpaceRecord
  | AddressesRecord

/** Whose store this is: sealed envelopes are good for one sender in one mesh. */
export interface OwnerRecord {
  readonly kind: 'owner'
  readonly format: number
  readonly meshId: MeshId
  readonly peerKey: PeerKey
}

interface Outgoing {
  /** Ascends in the order of the posts, over all lives of the peer. */
  readonly outboxNo: number
  readonly terms: OutgoingTerms
}

/** A post that was not sealed yet: its body stands in the store as it is. */
export interface WaitingRecord extends Outgoing {
  readonly kind: 'waiting'
  readonly bytes: Uint8Array
}

/** It may have been said to the broker, or not: a resend says these very bytes. */
export interface SealedRecord extends Outgoing {
  readonly kind: 'sealed'
  readonly envelopeId: EnvelopeId
  readonly admittedAtMs: Millis
  /** The sealed envelope. */
  readonly bytes: Uint8Array
}

export type OutboxRecord = WaitingRecord | SealedRecord

/** The body of a message to a group, which several posts name by its id in their terms. */
export interface SharedBodyRecord {
  readonly kind: 'group'
  readonly groupId: GroupId
  readonly epoch: number
  readonly bodyId: string
  readonly terms: GroupMessageTerms
  readonly isSecond: boolean
  /** Members that are to get it sealed again. */
  readonly owed: readonly PeerKey[]
  /** Of what the history is to keep; without it, and with 0, nothing is. */
  readonly recordBytes?: number
  /** The ticket, then that record, then the sealed body. */
  readonly bytes: Uint8Array
}

/** What was settled of one stream. */
export interface SettledRangesRecord {
  readonly kind: 'mark'
  readonly sender: PeerKey
  readonly streamId: StreamId
  /** Ascends in the order in which the streams were last used. */
  readonly rank: number
  /** From, to, from, to …, ascending, both ends included. */
  readonly settled: readonly number[]
}

/** A settled message that stood in no stream. */
export interface SettledIdRecord {
  readonly kind: 'loose'
  readonly sender: PeerKey
  readonly envelopeId: EnvelopeId
  readonly rank: number
}

/** A rejected message. Its mark, or a `loose` record, counts it as settled. */
export interface RejectedRecord {
  readonly kind: 'rejected'
  readonly sender: PeerKey
  readonly envelopeId: EnvelopeId
  /** The delivery that was rejected: a redriven message comes as another one. */
  readonly deliveryId: DeliveryId
  readonly reason: string
  readonly rank: number
}

export type InboxRecord = SettledRangesRecord | SettledIdRecord | RejectedRecord

/** The highest epoch of a box key that its peer's signature proved (`key-epochs.ts`). */
export interface KeyEpochRecord {
  readonly kind: 'keyEpoch'
  readonly peer: PeerKey
  readonly boxEpoch: number
}

/** What is remembered of a space (`state/entry-verifier.ts`): its terms, its keys, and the newest entry of each key. */
export type SpaceRecord = SpacePinRecord | SpaceKeysRecord | KnownEntryRecord

/** Where the mesh was served last, which may be another cell than the one of the application's addresses. */
export interface AddressesRecord extends KnownAddresses {
  readonly kind: 'addresses'
}

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
  /** In base64url: the statement of the group that names everybody who was given the newest key. */
  readonly group?: string
  /** A grant to oneself. */
  readonly bytes: Uint8Array
}

export interface KnownEntryRecord extends OfSpace {
  readonly kind: 'entry'
  readonly keyHash: string
  readonly revision: number
  /** 64 hex digits. */
  readonly hash: string
  readonly keyEpoch: number
  readonly isDeleted: boolean
  readonly seq: number
}

const FORMAT = 1
const OWNER_KEY = 'owner'

/**
 * Loads what belongs to this peer, under this identity key or one before it, and makes an empty store its own.
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
    throw new SealpostError('store_foreign', 'This store is of another peer, mesh or version.')
  return records
}

/**
 * What is to be kept, gathered into batches. One batch is under way at a time, so the next one is whatever came up during
 * its write: the disk sets the pace, and a sync is shared by as many messages as it takes. Pure and synchronous.
 */
export class StoreWriter {
  readonly #keep: (changes: StoreChange[]) => void
  /** Of one key only the last change counts. Records are made when the batch leaves. */
  #changes = new Map<string, (() => StoreRecord) | null>()
  #waiters: (() => void)[] = []
  /** Who waits for the batch under way; null while there is none. */
  #underWay: (() => void)[] | null = null

  /** `keep` is answered by `kept`, or never. */
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

  /** Calls it when everything asked for so far is kept, at once if it is. */
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

/** A store that is written in the background, one batch at a time; a caller that needs to know that all is kept can wait. */
export class WriteBehindStore {
  readonly #store: PeerStore
  readonly #writer: StoreWriter
  readonly #failed = Promise.withResolvers<void>()
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

  /** Resolves when all so far is kept. @throws SealpostError `store_failed` */
  async settled(): Promise<void> {
    if (!this.#failure) {
      const kept = new Promise<void>((resolve) => this.#writer.whenWritten(resolve))
      this.#flush()
      await Promise.race([kept, this.#failed.promise])
    }
    if (this.#failure) throw this.#failure
  }

  /** @throws SealpostError `store_failed` */
  async close(): Promise<void> {
    try {
      await this.settled()
    } finally {
      await this.#store.close()
    }
  }

  /** In a turn of its own, so that what one answer brought is one write. */
  #flush(): void {
    queueMicrotask(() => {
      if (!this.#failure) this.#writer.flush()
    })
  }

  #fail(cause: unknown): void {
    this.#failure =
      cause instanceof SealpostError
        ? cause
        : new SealpostError('store_failed', 'The store refused to keep.', { cause })
    this.#failed.resolve()
  }
}
