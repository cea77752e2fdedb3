/**
 * Lets long work through in small parts, one part in each turn of the event loop and not before a millisecond is over:
 * between two of them everything else that waits has its turn, however many there are. What comes in that millisecond is
 * read at once, which costs less than to read it as it comes.
 */
const PART_EVERY_MS = 1

export class Turnstile {
  readonly #waiting: (() => void)[] = []
  #timer: ReturnType<typeof setTimeout> | undefined

  /** Resolves in the order in which it was asked. */
  pass(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve)
      this.#timer ??= setTimeout(this.#next, PART_EVERY_MS)
    })
  }

  readonly #next = (): void => {
    this.#timer = undefined
    this.#waiting.shift()?.()
    if (this.#waiting.length > 0) this.#timer = setTimeout(this.#next, PART_EVERY_MS)
  }
}
