/** A queue in one array: `shift` of a plain array moves everything behind it. */
export class Fifo<T> {
  #items: (T | undefined)[] = []
  #head = 0

  get length(): number {
    return this.#items.length - this.#head
  }

  push(item: T): void {
    this.#items.push(item)
  }

  peek(): T | undefined {
    return this.#items[this.#head]
  }

  shift(): T | undefined {
    const item = this.#items[this.#head]
    if (this.#head === this.#items.length) return undefined
    this.#items[this.#head] = undefined
    this.#head += 1
    if (this.#head === this.#items.length) this.clear()
    else if (this.#head > 256 && this.#head * 2 > this.#items.length) this.#compact()
    return item
  }

  clear(): void {
    this.#items = []
    this.#head = 0
  }

  *[Symbol.iterator](): IterableIterator<T> {
    for (let i = this.#head; i < this.#items.length; i++) yield this.#items[i]!
  }

  #compact(): void {
    this.#items = this.#items.slice(this.#head)
    this.#head = 0
  }
}
