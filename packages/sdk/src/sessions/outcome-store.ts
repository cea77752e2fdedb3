/** Wraps the store of a peer, so that others learn which outcomes of messages are stored. */
import { setImmediate } from 'node:timers/promises'
import type { StoreRecord } from '../stores/records.ts'
import type { PeerStore, StoreChange } from '../stores/store.ts'
import type { MailClaim } from './distribution.ts'

export class OutcomeStore implements PeerStore {
  readonly #store: PeerStore
  /** The settled places of each stream when the store was opened, and the settled messages without a stream. */
  readonly #settled = new Map<string, readonly number[]>()
  #afterWrite: (() => void)[] = []
  #writing: Promise<void> | null = null

  constructor(store: PeerStore) {
    this.#store = store
  }

  async load(): Promise<StoreRecord[]> {
    const records = await this.#store.load()
    for (const record of records) {
      if (record.kind === 'mark') this.#settled.set(record.streamId, record.settled)
      else if (record.kind === 'loose') this.#settled.set(`${record.sender} ${record.envelopeId}`, [])
    }
    return records
  }

  write(changes: readonly StoreChange[]): Promise<void> {
    this.#writing = this.#write(changes)
    return this.#writing
  }

  async #write(changes: readonly StoreChange[]): Promise<void> {
    const due = this.#afterWrite
    this.#afterWrite = []
    await this.#store.write(changes)
    for (const confirm of due) confirm()
  }

  close(): Promise<void> {
    return this.#store.close()
  }

  /** Resolves when the changes that the peer has made so far are stored, or when the store has failed. */
  async written(): Promise<void> {
    for (let write = 0; write < 2; write++) {
      await setImmediate() // the peer begins the next write
      await this.#writing?.catch(() => undefined) // the first one may have begun before the last change
    }
  }

  /** Calls `then` when the changes that the peer has made so far are stored. The last one is made afterwards. */
  afterWrite(then: () => void): void {
    this.#afterWrite.push(then)
  }

  /** Returns whether a former host has stored the outcome of the message. */
  has({ id, place }: MailClaim): boolean {
    if (!place) return this.#settled.has(id.slice(id.indexOf('/') + 1))
    const ranges = this.#settled.get(place.streamId) ?? []
    return ranges.some((first, i) => i % 2 === 0 && first <= place.seq && place.seq <= ranges[i + 1]!)
  }
}
