/**
 * What is asked one by one and answered many at a time: one statement is under way, and whatever is asked meanwhile shares
 * the next one. Peers that all come back at once then cost a few statements and not some for each of them.
 */
export class Gathered<Item, Answer> {
  private readonly askAll: (items: readonly Item[]) => Promise<readonly Answer[]>
  private readonly max: number
  private readonly keyOf: (item: Item) => string | symbol
  private readonly waiting = new Map<string | symbol, Waiter<Item, Answer>>()
  private isAsking = false

  /**
   * `askAll` answers in the order of its items, of which it gets `max` at most. Items of one key share an answer: a
   * hundred peers that look each other up ask for a hundred keys, not for ten thousand.
   */
  constructor(
    askAll: (items: readonly Item[]) => Promise<readonly Answer[]>,
    max: number,
    keyOf: (item: Item) => string | symbol = () => Symbol(),
  ) {
    this.askAll = askAll
    this.max = max
    this.keyOf = keyOf
  }

  /** Fails with the statement that it shared. */
  ask(item: Item): Promise<Answer> {
    const key = this.keyOf(item)
    const waiter = this.waiting.get(key) ?? { item, ...Promise.withResolvers<Answer>() }
    this.waiting.set(key, waiter)
    if (!this.isAsking) void this.askWaiting()
    return waiter.promise
  }

  private async askWaiting(): Promise<void> {
    this.isAsking = true
    await Promise.resolve() // what one call asks for item by item goes together
    while (this.waiting.size > 0) await this.askFor(this.take())
    this.isAsking = false
  }

  private take(): Waiter<Item, Answer>[] {
    const taken = [...this.waiting].slice(0, this.max)
    for (const [key] of taken) this.waiting.delete(key)
    return taken.map(([, waiter]) => waiter)
  }

  private async askFor(waiters: readonly Waiter<Item, Answer>[]): Promise<void> {
    try {
      const answers = await this.askAll(waiters.map(({ item }) => item))
      for (const [i, waiter] of waiters.entries()) waiter.resolve(answers[i]!)
    } catch (error) {
      for (const waiter of waiters) waiter.reject(error)
    }
  }
}

interface Waiter<Item, Answer> extends PromiseWithResolvers<Answer> {
  readonly item: Item
}
