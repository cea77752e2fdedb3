/**
 * The drain worker: gathers what sessions want and claims for all of them in one statement, once a tick. A commit or a
 * freed credit pulls the tick forward, so that a quiet broker claims at once; under load the tick bounds how often, and
 * with that how many recipients share a statement. One statement is in flight at a time.
 */
import type { Want } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'

export interface DrainOptions {
  readonly tickMs: Millis
  readonly wantsMax: number
}

export const defaultDrainOptions: DrainOptions = { tickMs: 5, wantsMax: 500 }

export interface DrainPorts<W> {
  /** Begins a claim; its end is told by `ended`. */
  start(wants: readonly W[]): void
  /** Calls `tick` after this many milliseconds. */
  schedule(afterMs: Millis, tick: () => void): void
  nowMs(): Millis
}

export class Drain<W = Want> {
  private readonly ports: DrainPorts<W>
  private readonly options: DrainOptions
  private waiting: W[] = []
  private isClaiming = false
  private isScheduled = false
  private startedAtMs = Number.NEGATIVE_INFINITY

  constructor(ports: DrainPorts<W>, options: DrainOptions = defaultDrainOptions) {
    this.ports = ports
    this.options = options
  }

  want(want: W): void {
    this.waiting.push(want)
  }

  /** Claims now if a tick has passed since the last claim began, else when it has. */
  pull(): void {
    if (this.isClaiming || this.isScheduled || this.waiting.length === 0) return
    const waitMs = this.startedAtMs + this.options.tickMs - this.ports.nowMs()
    if (waitMs <= 0) return this.claim()
    this.isScheduled = true
    this.ports.schedule(waitMs, () => {
      this.isScheduled = false
      if (!this.isClaiming) this.claim()
    })
  }

  ended(): void {
    this.isClaiming = false
    this.pull()
  }

  private claim(): void {
    this.isClaiming = true
    this.startedAtMs = this.ports.nowMs()
    this.ports.start(this.waiting.splice(0, this.options.wantsMax))
  }
}
