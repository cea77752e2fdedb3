/**
 * What is to be kept, gathered into batches. One batch is under way at a time, so the next one is whatever came up during
 * its write: the disk sets the pace, and a sync is shared by as many messages as it takes. Pure and synchronous.
 */
import type { StoreChange, StoreRecord } from './store.ts'

export class Keeper {
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
  whenKept(then: () => void): void {
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

  kept(): void {
    const waiters = this.#underWay
    this.#underWay = null
    for (const waiter of waiters ?? []) waiter()
  }
}
