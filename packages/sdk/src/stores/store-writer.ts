/**
 * What is to be kept, gathered into batches. One batch is under way at a time, so the next one is whatever came up during
 * its write: the disk sets the pace, and a sync is shared by as many messages as it takes. Pure and synchronous.
 */

import { SealpostError } from '../errors.ts'
import type { PeerStore, StoreChange, StoreRecord } from './store.ts'

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
