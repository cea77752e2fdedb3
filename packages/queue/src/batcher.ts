/**
 * Configures a `Batcher`, which combines concurrent items into statements: while one runs, new items queue for the
 * next. Peers that reconnect together then cost a few statements in total, and no peer fills the connection pool.
 */
export interface BatcherOptions<Item> {
  readonly max: number
  /** Returns a key. Waiting items with the same key share one entry and its result. */
  readonly keyOf?: (item: Item) => string
}

export class Batcher<Item, Result> {
  readonly #run: (items: readonly Item[]) => Promise<readonly Result[]>
  readonly #max: number
  readonly #keyOf: (item: Item) => string | symbol
  readonly #waiting = new Map<string | symbol, Waiter<Item, Result>>()
  #isRunning = false

  /** `run` returns a result for each item, in the order of the items. */
  constructor(run: (items: readonly Item[]) => Promise<readonly Result[]>, { max, keyOf }: BatcherOptions<Item>) {
    this.#run = run
    this.#max = max
    this.#keyOf = keyOf ?? (() => Symbol())
  }

  /** Whether no statement is running and no item is waiting. */
  get isIdle(): boolean {
    return !this.#isRunning
  }

  /** Resolves with the item's result; rejects if its statement fails. */
  add(item: Item): Promise<Result> {
    const key = this.#keyOf(item)
    const waiter = this.#waiting.get(key) ?? { item, ...Promise.withResolvers<Result>() }
    this.#waiting.set(key, waiter)
    if (!this.#isRunning) void this.#runWaiting()
    return waiter.promise
  }

  async #runWaiting(): Promise<void> {
    this.#isRunning = true
    await Promise.resolve() // lets other items of the same turn join the statement
    while (this.#isRunning) {
      const settle = await this.#runFor(this.#take())
      this.#isRunning = this.#waiting.size > 0
      settle()
    }
  }

  #take(): Waiter<Item, Result>[] {
    const taken: Waiter<Item, Result>[] = []
    for (const [key, waiter] of this.#waiting) {
      if (taken.length === this.#max) break
      this.#waiting.delete(key)
      taken.push(waiter)
    }
    return taken
  }

  async #runFor(waiters: readonly Waiter<Item, Result>[]): Promise<() => void> {
    try {
      const results = await this.#run(waiters.map(({ item }) => item))
      return () => {
        for (const [i, { resolve }] of waiters.entries()) resolve(results[i]!)
      }
    } catch (error) {
      return () => {
        for (const { reject } of waiters) reject(error)
      }
    }
  }
}

interface Waiter<Item, Result> extends PromiseWithResolvers<Result> {
  readonly item: Item
}
