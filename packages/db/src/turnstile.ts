/**
 * Lets long work through in small parts, one part in each turn of the event loop: between two of them everything else that
 * waits has its turn, however many there are.
 */
export class Turnstile {
  readonly #waiting: (() => void)[] = []
  #isArmed = false

  /** Resolves in the order in which it was asked. */
  pass(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve)
      this.#arm()
    })
  }

  #arm(): void {
    if (this.#isArmed) return
    this.#isArmed = true
    setImmediate(this.#next)
  }

  readonly #next = (): void => {
    this.#isArmed = false
    this.#waiting.shift()?.()
    if (this.#waiting.length > 0) this.#arm()
  }
}
