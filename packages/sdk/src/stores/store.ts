/**
 * Defines the store of a peer: what survives its process (`records.ts`). The engine requests the write of a batch, and
 * continues when the reply comes.
 */
import { type PeerKey, withResolvers } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { HeadRecord, OwnerRecord, SeenRecord, StoreRecord } from './records.ts'

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
