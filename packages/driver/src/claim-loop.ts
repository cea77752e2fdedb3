/**
 * Gathers the wants of many sessions into one statement per tick. A commit or freed credit pulls the tick forward, so an
 * idle broker claims at once; under load the tick bounds the rate of statements, so that many recipients share one. One
 * statement is in flight at a time. Claims, pool claims and collects have a loop each.
 */
import type { Millis } from '@sealpost/std'
import type { Failures } from './background.ts'
import type { Clock } from './ports.ts'

export interface ClaimLoopOptions {
  readonly tickMs: Millis
  readonly wantsMax: number
}

export const defaultClaimLoopOptions: ClaimLoopOptions = { tickMs: 5, wantsMax: 500 }

export interface ClaimPorts<Want, Result> {
  readonly clock: Pick<Clock, 'nowMs' | 'after'>
  readonly failures: Failures
  ask(wants: readonly Want[]): Promise<readonly Result[]>
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

  constructor(ports: ClaimPorts<Want, Result>, options: ClaimLoopOptions = defaultClaimLoopOptions) {
    this.#ports = ports
    this.#options = options
  }

  want(want: Want): void {
    this.#waiting.push(want)
  }

  /** Starts a statement if a tick has passed since the last one began, otherwise when it has. */
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
    const wants = this.#waiting.splice(0, this.#options.wantsMax)
    const results = await this.#ports.ask(wants).catch((error) => {
      this.#ports.failed(wants, error)
      return null
    })
    if (results) this.#ports.found(results)
    this.#isAsking = false
    this.pull()
  }
}
