/**
 * Records the ticks of schedules in the peer's store, in the batch that stores their messages. After a crash, a message
 * and the record of its tick are therefore either both stored or both absent.
 */
import type { PeerStore, StoreChange, StoreRecord } from '@sealpost/sdk'
import type { Millis } from '@sealpost/std'

interface TickRecord {
  readonly kind: 'tick'
  readonly schedule: string
  /** The latest tick for which a message was stored. */
  readonly tickMs: Millis
}

/** Returns a tick's record; null for a record of the SDK, whose type does not list ticks. */
function tickOf(record: { readonly kind: string }): TickRecord | null {
  return record.kind === 'tick' ? (record as TickRecord) : null
}

const isPost = ({ record }: StoreChange): boolean => record?.kind === 'waiting' || record?.kind === 'sealed'

export class TickStore implements PeerStore {
  readonly #store: PeerStore
  readonly #last = new Map<string, Millis>()
  /** The ticks to record with the next batch; null removes a schedule. */
  readonly #pending = new Map<string, Millis | null>()

  constructor(store: PeerStore) {
    this.#store = store
  }

  /** Returns the latest recorded tick of each schedule. Valid once the peer is open. */
  get last(): Readonly<Record<string, Millis>> {
    return Object.fromEntries(this.#last)
  }

  isRecorded(schedule: string, tickMs: Millis): boolean {
    return (this.#last.get(schedule) ?? 0) >= tickMs
  }

  /**
   * Records a tick in the batch that stores the posts of this turn, which the engine writes in one batch. Returns a
   * function that undoes it, for posts that were refused.
   */
  record(schedule: string, tickMs: Millis): () => void {
    const before = this.#last.get(schedule)
    this.#last.set(schedule, tickMs)
    this.#pending.set(schedule, tickMs)
    return () => {
      if (before === undefined) this.#last.delete(schedule)
      else this.#last.set(schedule, before)
      this.#pending.set(schedule, before ?? null)
    }
  }

  /** Forgets a schedule, with the next batch that stores a post. */
  forget(schedule: string): void {
    if (this.#last.delete(schedule)) this.#pending.set(schedule, null)
  }

  async load(): Promise<StoreRecord[]> {
    const records = await this.#store.load()
    for (const tick of records.map(tickOf)) if (tick) this.#last.set(tick.schedule, tick.tickMs)
    return records.filter((record) => tickOf(record) === null)
  }

  write(changes: readonly StoreChange[]): Promise<void> {
    if (this.#pending.size === 0 || !changes.some(isPost)) return this.#store.write(changes)
    const ticks = [...this.#pending].map(changeOf)
    this.#pending.clear()
    return this.#store.write([...changes, ...ticks])
  }

  close(): Promise<void> {
    return this.#store.close()
  }
}

/** The type of a change lists only the records of the SDK. A store does not interpret records. */
function changeOf([schedule, tickMs]: readonly [string, Millis | null]): StoreChange {
  const record: TickRecord | null = tickMs === null ? null : { kind: 'tick', schedule, tickMs }
  return { key: `tick ${schedule}`, record: record as unknown as StoreRecord | null }
}
