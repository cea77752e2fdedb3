/**
 * What is asked one by one and answered many at a time: one statement is under way, and whatever is asked meanwhile shares
 * the next one. Peers that all come back at once then cost a few statements and not some for each of them.
 */
export class Gathered<Item, Answer> {
  private readonly askAll: (items: readonly Item[]) => Promise<readonly Answer[]>
  private readonly max: number
  private readonly waiting: Waiter<Item, Answer>[] = []
  private isAsking = false

  /** `askAll` answers in the order of its items, of which it gets `max` at most. */
  constructor(askAll: (items: readonly Item[]) => Promise<readonly Answer[]>, max: number) {
    this.askAll = askAll
    this.max = max
  }

  /** Fails with the statement that it shared. */
  ask(item: Item): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ item, resolve, reject })
      if (!this.isAsking) void this.askWaiting()
    })
  }

  private async askWaiting(): Promise<void> {
    this.isAsking = true
    await Promise.resolve() // what one call asks for item by item goes together
    while (this.waiting.length > 0) await this.askFor(this.waiting.splice(0, this.max))
    this.isAsking = false
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

interface Waiter<Item, Answer> {
  readonly item: Item
  resolve(answer: Answer): void
  reject(error: unknown): void
}
