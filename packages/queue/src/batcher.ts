/**
 * Batches statements: while one runs, new items wait and share the next one. Many peers that come back at once then cost a
 * few statements instead of a few each, and no peer fills the pool of connections.
 */
export interface BatcherOptions<Item> {
  /** Items of one statement. */
  readonly max: number
  /** Items of one key that wait share one place and its answer. Default: each item has a place of its own. */
  readonly keyOf?: (item: Item) => string
}

export class Batcher<Item, Answer> {
  readonly #run: (items: readonly Item[]) => Promise<readonly Answer[]>
  readonly #max: number
  readonly #keyOf: (item: Item) => string | symbol
  readonly #waiting = new Map<string | symbol, Waiter<Item, Answer>>()
  #isRunning = false

  /** `run` returns an answer for each item, in their order. */
  constructor(run: (items: readonly Item[]) => Promise<readonly Answer[]>, { max, keyOf }: BatcherOptions<Item>) {
    this.#run = run
    this.#max = max
    this.#keyOf = keyOf ?? (() => Symbol())
  }

  /** Nothing runs and nothing waits. */
  get isIdle(): boolean {
    return !this.#isRunning
  }

  /** Rejects if the statement that took the item fails. */
  add(item: Item): Promise<Answer> {
    const key = this.#keyOf(item)
    const waiter = this.#waiting.get(key) ?? { item, ...Promise.withResolvers<Answer>() }
    this.#waiting.set(key, waiter)
    if (!this.#isRunning) void this.#runWaiting()
    return waiter.promise
  }

  async #runWaiting(): Promise<void> {
    this.#isRunning = true
    await Promise.resolve() // items that one call adds one by one share a statement
    while (this.#isRunning) {
      const settle = await this.#runFor(this.#take())
      this.#isRunning = this.#waiting.size > 0
      settle()
    }
  }

  #take(): Waiter<Item, Answer>[] {
    const taken: Waiter<Item, Answer>[] = []
    for (const [key, waiter] of this.#waiting) {
      if (taken.length === this.#max) break
      this.#waiting.delete(key)
      taken.push(waiter)
    }
    return taken
  }

  /** Runs one statement. Returns what settles its waiters. */
  async #runFor(waiters: readonly Waiter<Item, Answer>[]): Promise<() => void> {
    try {
      const answers = await this.#run(waiters.map(({ item }) => item))
      return () => {
        for (const [i, { resolve }] of waiters.entries()) resolve(answers[i]!)
      }
    } catch (error) {
      return () => {
        for (const { reject } of waiters) reject(error)
      }
    }
  }
}

interface Waiter<Item, Answer> extends PromiseWithResolvers<Answer> {
  readonly item: Item
}
