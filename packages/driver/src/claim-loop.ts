/**
 * Gathers the wants of many sessions into one statement per tick, of which one is in flight at a time. An idle broker
 * claims immediately; under load, the tick lets many recipients share a statement.
 *
 * While backlogs drain, a statement takes fewer wants: one for all recipients would return tens of thousands of
 * deliveries, and database and recipients would wait for each other.
 */
import type { Millis } from '@sealpost/std'
import type { Failures } from './background.ts'
import type { Clock } from './ports.ts'

export interface ClaimLoopOptions {
  readonly tickMs: Millis
  readonly wantsMax: number
  /** The number of deliveries that a statement aims at, if each want finds as many as in the last one. */
  readonly deliveriesAim: number
}

export const defaultClaimLoopOptions: ClaimLoopOptions = { tickMs: 5, wantsMax: 500, deliveriesAim: 4_000 }

export interface ClaimPorts<Want, Result> {
  readonly clock: Pick<Clock, 'nowMs' | 'after'>
  readonly failures: Failures
  ask(wants: readonly Want[]): Promise<readonly Result[]>
  countOf(result: Result): number
  found(results: readonly Result[]): void
  failed(wants: readonly Want[], error: unknown): void
}

export class ClaimLoop<Want, Result> {
  readonly #ports: ClaimPorts<Want, Result>
  readonly #options: ClaimLoopOptions
  readonly #waiting: Want[] = []
  #isAsking = false
  #isScheduled = false
  #startedAtMs = Number.NEGATIVE_INFINITY
  #perWant = 0

  constructor(ports: ClaimPorts<Want, Result>, options: ClaimLoopOptions = defaultClaimLoopOptions) {
    this.#ports = ports
    this.#options = options
  }

  want(want: Want): void {
    this.#waiting.push(want)
  }

  /** Starts a statement, if a tick has passed since the last one began; otherwise, starts it then. */
  pull(): void {
    if (this.#isAsking || this.#isScheduled || this.#waiting.length === 0) return
    const { clock, failures } = this.#ports
    const waitMs = this.#startedAtMs + this.#options.tickMs - clock.nowMs()
    if (waitMs <= 0) return failures.start(this.#ask())
    this.#isScheduled = true
    clock.after(waitMs, () => {
      this.#isScheduled = false
      if (!this.#isAsking) failures.start(this.#ask())
    })
  }

  async #ask(): Promise<void> {
    this.#isAsking = true
    this.#startedAtMs = this.#ports.clock.nowMs()
    const wants = this.#waiting.splice(0, this.#wantsNext)
    const results = await this.#ports.ask(wants).catch((error) => {
      this.#ports.failed(wants, error)
      return null
    })
    if (results) {
      const count = results.reduce((sum, result) => sum + this.#ports.countOf(result), 0)
      this.#perWant = count / results.length
      this.#ports.found(results)
    }
    this.#isAsking = false
    this.pull()
  }

  get #wantsNext(): number {
    const { wantsMax, deliveriesAim } = this.#options
    return Math.max(1, Math.min(wantsMax, Math.floor(deliveriesAim / this.#perWant)))
  }
}
