/**
 * Releases delayed envelopes when they are due, and sweeps the queue. A release runs when the next known envelope is
 * due, and every 15 s for those of other shards.
 */
import type { Queue, RecipientRef, Swept } from '@sealpost/queue'
import type { Millis } from '@sealpost/std'
import type { BackgroundTimers, Failures } from './background.ts'
import type { Cancel, Clock, DriverReport } from './ports.ts'

const RELEASE_EVERY_MS: Millis = 15_000
/** The minimum time between releases, because this clock differs from the database clock. */
const RELEASE_AGAIN_MS: Millis = 100

export interface ReleasePorts {
  readonly clock: Pick<Clock, 'wallMs'>
  readonly timers: BackgroundTimers
  readonly queue: Pick<Queue, 'releaseDue'>
  readonly failures: Failures
  /** Called after a delivery has entered this recipient's queue. */
  released(recipient: RecipientRef): void
}

export class Releases {
  readonly #ports: ReleasePorts
  #cancel: Cancel = () => undefined
  #dueAtMs = Infinity
  #isReleasing = false

  constructor(ports: ReleasePorts) {
    this.#ports = ports
    this.by(0)
  }

  /** Schedules the next release no later than this time (ms since 1970). */
  by(atMs: Millis): void {
    if (atMs >= this.#dueAtMs) return
    this.#dueAtMs = atMs
    this.#schedule()
  }

  #schedule(): void {
    const { clock, timers, failures } = this.#ports
    this.#cancel()
    if (this.#isReleasing) return
    const afterMs = Math.min(this.#dueAtMs - clock.wallMs(), RELEASE_EVERY_MS)
    this.#cancel = timers.after(Math.max(RELEASE_AGAIN_MS, afterMs), () => failures.start(this.#release()))
  }

  async #release(): Promise<void> {
    const { clock, queue, failures, released } = this.#ports
    this.#dueAtMs = Infinity
    this.#isReleasing = true
    const found = await queue.releaseDue().catch((error) => {
      failures.report('release.failed', error)
      return null
    })
    for (const recipient of found?.recipients ?? []) released(recipient)
    if (found && found.nextInMs !== null) this.by(clock.wallMs() + found.nextInMs)
    this.#isReleasing = false
    this.#schedule()
  }
}

const PACE_MAX = 4

export interface SweepPorts {
  readonly queue: Pick<Queue, 'sweep'>
  readonly report: Pick<DriverReport, 'swept'>
  readonly failures: Failures
}

export class Sweeps {
  /** The number of live shards, including this one. */
  shardCount = 1
  readonly #ports: SweepPorts
  #ticks = 0
  /** The number of ticks between two sweeps. */
  #pace = 1
  #isSweeping = false

  constructor(ports: SweepPorts) {
    this.#ports = ports
  }

  /** Call at the sweep interval of a shard that is alone. */
  tick(): void {
    this.#ticks += 1
    if (this.#ticks < this.shardCount * this.#pace || this.#isSweeping) return
    this.#ticks = 0
    this.#ports.failures.start(this.#sweep())
  }

  async #sweep(): Promise<void> {
    const { queue, report, failures } = this.#ports
    this.#isSweeping = true
    const swept = await queue.sweep().catch((error) => {
      failures.report('sweep.failed', error)
      return null
    })
    this.#isSweeping = false
    if (!swept) return
    this.#pace = isQuiet(swept) ? Math.min(PACE_MAX, this.#pace * 2) : 1
    report.swept(swept)
  }
}

const isQuiet = ({ expired, dead, forgotten, isRound }: Swept): boolean => isRound && expired + dead + forgotten === 0
