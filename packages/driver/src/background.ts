/** Runs timers and background work, and reports failures for which no caller waits. */
import { type Millis, OperatingError } from '@sealpost/std'
import type { Cancel, Clock, DriverReport } from './ports.ts'

const REPORT_EVERY_MS: Millis = 1000

/** Timers of which none fires after `stop`. */
export class BackgroundTimers {
  readonly #clock: Pick<Clock, 'after'>
  readonly #cancels = new Set<Cancel>()
  #isStopped = false

  constructor(clock: Pick<Clock, 'after'>) {
    this.#clock = clock
  }

  after(delayMs: Millis, run: () => void): Cancel {
    if (this.#isStopped) return () => undefined
    const cancel = this.#clock.after(delayMs, () => {
      this.#cancels.delete(cancel)
      run()
    })
    this.#cancels.add(cancel)
    return () => {
      this.#cancels.delete(cancel)
      cancel()
    }
  }

  every(periodMs: Millis, run: () => void): void {
    this.after(periodMs, () => {
      run()
      this.every(periodMs, run)
    })
  }

  stop(): void {
    this.#isStopped = true
    for (const cancel of this.#cancels) cancel()
    this.#cancels.clear()
  }
}

/** Reports operating errors. Ends the process after every other error, which is a bug. */
export class Failures {
  readonly #clock: Pick<Clock, 'nowMs'>
  readonly #report: Pick<DriverReport, 'failed' | 'fault'>
  readonly #reportedAtMs = new Map<string, Millis>()

  constructor(clock: Pick<Clock, 'nowMs'>, report: Pick<DriverReport, 'failed' | 'fault'>) {
    this.#clock = clock
    this.#report = report
  }

  start(work: Promise<unknown>): void {
    work.catch((error) => this.#report.fault(error))
  }

  /** Reports an event at most once a second, because every statement fails in an outage. */
  report(event: string, error: unknown): void {
    if (!(error instanceof OperatingError)) return this.#report.fault(error)
    const nowMs = this.#clock.nowMs()
    if (nowMs - (this.#reportedAtMs.get(event) ?? Number.NEGATIVE_INFINITY) < REPORT_EVERY_MS) return
    this.#reportedAtMs.set(event, nowMs)
    this.#report.failed(event, error)
  }
}
