/**
 * Whether the broker has more to do than it can. It says so before it falls over: then nobody new is let in and nothing
 * new is taken, each refused with a code that may be retried, while what was taken is still answered.
 */

import type { Driver } from '@sealpost/driver'
import type { Database } from '@sealpost/pg'
import type { Millis } from '@sealpost/std'
import type { Config } from '../config/config.ts'
import type { Log } from '../telemetry/log.ts'
import { type Metrics, residentBytes } from '../telemetry/metrics.ts'

export interface OverloadLimits {
  /** The event loop may come so late. */
  readonly lagMsMax: Millis
  /** Memory of the process. */
  readonly memoryBytesMax: number
  /** Statements that wait for a connection to the database. */
  readonly statementsMax: number
}

export interface Readings {
  readonly nowMs: () => Millis
  readonly memoryBytes: () => number
  /** Garbage counts until it is collected: over the limit it is, before anybody is refused. */
  readonly collect: () => void
  readonly statementsWaiting: () => number
}

export type OverloadReason = 'event_loop' | 'memory' | 'statements'

export const LOOK_EVERY_MS = 250
/** A single late look is a pause of this process: of its machine, its collector, or a signal. */
const LATE_LOOKS_MIN = 4
/** Calm for so long before it counts as over, or it would flicker. */
const CALM_LOOKS_MIN = 4
/** A whole collection stops everything for about 100 ms per GB. */
const COLLECT_EVERY_MS = 5000

export class Overload {
  /** Null: there is none. */
  reason: OverloadReason | null = null
  lagMs: Millis = 0
  private readonly limits: OverloadLimits
  private readonly readings: Readings
  private lookedAtMs: Millis
  private collectedAtMs = Number.NEGATIVE_INFINITY
  private lateLooks = 0
  private calmLooks = 0

  constructor(limits: OverloadLimits, readings: Readings) {
    this.limits = limits
    this.readings = readings
    this.lookedAtMs = readings.nowMs()
  }

  /** Every `LOOK_EVERY_MS`. Answers whether something changed. */
  look(): boolean {
    const before = this.reason
    const found = this.find()
    this.calmLooks = found ? 0 : this.calmLooks + 1
    if (found) this.reason = found
    else if (this.calmLooks >= CALM_LOOKS_MIN) this.reason = null
    return this.reason !== before
  }

  private find(): OverloadReason | null {
    const { nowMs, statementsWaiting } = this.readings
    this.lagMs = Math.max(0, nowMs() - this.lookedAtMs - LOOK_EVERY_MS)
    this.lookedAtMs = nowMs()
    this.lateLooks = this.lagMs > this.limits.lagMsMax ? this.lateLooks + 1 : 0
    if (this.lateLooks >= LATE_LOOKS_MIN) return 'event_loop'
    if (this.isOutOfMemory()) return 'memory'
    return statementsWaiting() > this.limits.statementsMax ? 'statements' : null
  }

  private isOutOfMemory(): boolean {
    const { nowMs, memoryBytes, collect } = this.readings
    if (memoryBytes() <= this.limits.memoryBytesMax) return false
    if (nowMs() - this.collectedAtMs < COLLECT_EVERY_MS) return true
    this.collectedAtMs = nowMs()
    collect()
    return memoryBytes() > this.limits.memoryBytesMax
  }
}

interface Parts {
  readonly driver: Driver
  readonly log: Log
  readonly metrics: Metrics
  readonly asking: Database
}

export interface OverloadWatch {
  readonly overload: Overload
  stop(): void
}

/** With the limits off it looks, and finds none. */
export function watchOverload(config: Config, { driver, log, metrics, asking }: Parts): OverloadWatch {
  const overload = new Overload(
    config.LIMITS === 'off'
      ? { lagMsMax: Infinity, memoryBytesMax: Infinity, statementsMax: Infinity }
      : {
          lagMsMax: config.LAG_MS_MAX,
          memoryBytesMax: config.MEMORY_BYTES_MAX,
          statementsMax: config.STATEMENTS_WAITING_MAX,
        },
    {
      nowMs: () => performance.now(),
      memoryBytes: residentBytes,
      collect: () => Bun.gc(true),
      statementsWaiting: () => asking.waitingCount,
    },
  )
  metrics.show({
    event_loop_lag_seconds: ['event loop lag at the last measurement', () => overload.lagMs / 1000],
    statements_waiting: ['statements that wait for a database connection', () => asking.waitingCount],
    overloaded: [
      '1 while the broker is overloaded and refuses new connections and sends',
      () => (overload.reason ? 1 : 0),
    ],
  })
  const look = () => {
    const isOther = overload.look()
    metrics.late(overload.lagMs)
    if (!isOther) return
    driver.engine.isOverloaded = overload.reason !== null
    const { reason, lagMs } = overload
    if (reason) log.warn('overload.began', { reason, lagMs, memoryBytes: residentBytes() })
    else log.info('overload.ended')
  }
  const timer = setInterval(look, LOOK_EVERY_MS)
  timer.unref()
  return { overload, stop: () => clearInterval(timer) }
}
