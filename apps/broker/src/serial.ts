/** One statement at a time, for all that was given meanwhile: so that nobody fills the pool of connections with them. */
export class Serial<Item> {
  readonly #max: number
  readonly #run: (items: readonly Item[]) => Promise<boolean>
  readonly #waiting: Item[] = []
  #isBusy = false

  /** `run` takes at most `max` items, returns whether they are done, and doesn't reject. */
  constructor(max: number, run: (items: readonly Item[]) => Promise<boolean>) {
    this.#max = max
    this.#run = run
  }

  /** Returns false if something failed; true at once while a former call is at work, which does these, too. */
  async add(items: readonly Item[]): Promise<boolean> {
    this.#waiting.push(...items)
    if (this.#isBusy) return true
    this.#isBusy = true
    let areDone = true
    while (this.#waiting.length > 0) areDone = (await this.#run(this.#waiting.splice(0, this.#max))) && areDone
    this.#isBusy = false
    return areDone
  }
}
