/** Stores records in memory as long as the object exists, for tests and to pass a peer's state to a new `Peer`. */
import { SealpostError } from '../errors.ts'
import type { StoreRecord } from './records.ts'
import type { PeerStore, StoreChange } from './store.ts'

export class MemoryStore implements PeerStore {
  readonly #records: Map<string, StoreRecord>
  #isClosed = false

  constructor(records: ReadonlyMap<string, StoreRecord> = new Map()) {
    this.#records = new Map(records)
  }

  get records(): ReadonlyMap<string, StoreRecord> {
    return this.#records
  }

  async load(): Promise<StoreRecord[]> {
    this.#check()
    return [...this.#records.values()]
  }

  async write(changes: readonly StoreChange[]): Promise<void> {
    this.#check()
    for (const { key, record } of changes) {
      if (record) this.#records.set(key, record)
      else this.#records.delete(key)
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
  }

  #check(): void {
    if (this.#isClosed) throw new SealpostError('store_failed', 'This store was closed.')
  }
}
