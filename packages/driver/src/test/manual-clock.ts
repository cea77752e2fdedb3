/** A clock that advances only when a test moves it. */
import type { Millis } from '@sealpost/std'
import type { Clock } from '../ports.ts'

/** The number of microtasks per turn, more than any chain of promises has. */
const PROMISES_DEEP = 30

interface Timer {
  readonly atMs: Millis
  readonly run: () => void
}

export class ManualClock implements Clock {
  #nowMs: Millis = 0
  #timers: Timer[] = []
  #soon: (() => void)[] = []

  nowMs(): Millis {
    return this.#nowMs
  }

  wallMs(): Millis {
    return 1_700_000_000_000 + this.#nowMs
  }

  after(delayMs: Millis, run: () => void): () => void {
    const timer = { atMs: this.#nowMs + delayMs, run }
    this.#timers.push(timer)
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer)
    }
  }

  soon(run: () => void): void {
    this.#soon.push(run)
  }

  /** The time until each timer fires. */
  get waitsMs(): readonly Millis[] {
    return this.#timers.map(({ atMs }) => atMs - this.#nowMs)
  }

  /** Runs turns of the event loop until no callback remains. */
  async turn(): Promise<void> {
    do {
      for (const run of this.#soon.splice(0)) run()
      for (let i = 0; i < PROMISES_DEEP; i++) await Promise.resolve()
    } while (this.#soon.length > 0)
  }

  /** Advances the time, and fires due timers in order, each at its own time. */
  async advance(byMs: Millis): Promise<void> {
    const untilMs = this.#nowMs + byMs
    await this.turn()
    for (let next = this.#next(untilMs); next; next = this.#next(untilMs)) {
      const timer = next
      this.#timers = this.#timers.filter((other) => other !== timer)
      this.#nowMs = timer.atMs
      timer.run()
      await this.turn()
    }
    this.#nowMs = untilMs
  }

  #next(untilMs: Millis): Timer | undefined {
    return this.#timers.filter(({ atMs }) => atMs <= untilMs).sort((a, b) => a.atMs - b.atMs)[0]
  }
}
