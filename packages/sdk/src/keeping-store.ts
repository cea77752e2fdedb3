/** A store that is written in the background, one batch at a time; whoever needs to know that all is kept can wait. */
import { SealpostError } from './errors.ts'
import { Keeper } from './keeper.ts'
import type { PeerStore, StoreRecord } from './store.ts'

export class KeepingStore {
  readonly #store: PeerStore
  readonly #keeper: Keeper
  readonly #failed = Promise.withResolvers<void>()
  #failure: SealpostError | null = null

  constructor(store: PeerStore) {
    this.#store = store
    this.#keeper = new Keeper((changes) => {
      void store.write(changes).then(
        () => {
          this.#keeper.kept()
          this.#keeper.flush()
        },
        (cause) => this.#fail(cause),
      )
    })
  }

  put(key: string, record: StoreRecord): void {
    this.#keeper.put(key, () => record)
    this.#flush()
  }

  remove(key: string): void {
    this.#keeper.remove(key)
    this.#flush()
  }

  /** Resolves when all so far is kept. @throws SealpostError `store_failed` */
  async settled(): Promise<void> {
    if (!this.#failure) {
      const kept = new Promise<void>((resolve) => this.#keeper.whenKept(resolve))
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
      if (!this.#failure) this.#keeper.flush()
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
