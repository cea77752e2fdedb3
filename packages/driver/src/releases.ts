/**
 * Releases delayed envelopes when they are due: at the time that an envelope named, at the time that the last release named,
 * and every quarter of a minute in any case, since another shard may have stored one.
 */
import type { Queue, Recipient } from '@sealpost/queue'
import type { Millis } from '@sealpost/std'
import type { BackgroundTimers, Failures } from './background.ts'
import type { Cancel, Clock } from './ports.ts'

const RELEASE_EVERY_MS: Millis = 15_000
/** Between two releases, at least: this clock and the database's are not the same. */
const RELEASE_AGAIN_MS: Millis = 100

export interface ReleasePorts {
  readonly clock: Pick<Clock, 'wallMs'>
  readonly timers: BackgroundTimers
  readonly queue: Pick<Queue, 'releaseDue'>
  readonly failures: Failures
  /** This recipient's queue has something new. */
  released(recipient: Recipient): void
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

  /** Releases at this time at the latest, in ms since 1970. */
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
