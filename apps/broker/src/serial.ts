/** Runs one statement at a time, so that no peer fills the pool of connections; items added meanwhile share the next one. */
export class Serial<Item> {
  readonly #max: number
  readonly #run: (items: readonly Item[]) => Promise<boolean>
  readonly #waiting: Waiting<Item>[] = []
  #isBusy = false

  /** `run` takes at most `max` items, returns whether they are done, and doesn't reject. */
  constructor(max: number, run: (items: readonly Item[]) => Promise<boolean>) {
    this.#max = max
    this.#run = run
  }

  /** Resolves when these items were run: true if every call that took some of them is done. */
  add(items: readonly Item[]): Promise<boolean> {
    const ended = items.map((item) => new Promise<boolean>((end) => this.#waiting.push({ item, end })))
    if (!this.#isBusy) void this.#work()
    return Promise.all(ended).then((areDone) => areDone.every(Boolean))
  }

  async #work(): Promise<void> {
    this.#isBusy = true
    while (this.#waiting.length > 0) {
      const taken = this.#waiting.splice(0, this.#max)
      const isDone = await this.#run(taken.map(({ item }) => item))
      for (const { end } of taken) end(isDone)
    }
    this.#isBusy = false
  }
}

interface Waiting<Item> {
  readonly item: Item
  readonly end: (isDone: boolean) => void
}
