/** Detects overload, in which the broker refuses new sessions and messages with retryable codes. */

import { closeSync, openSync } from 'node:fs'
import { devNull } from 'node:os'
import type { Driver } from '@sealpost/driver'
import type { Database } from '@sealpost/pg'
import type { Millis } from '@sealpost/std'
import type { Config } from '../config/config.ts'
import { errorFields, type Log } from '../telemetry/log.ts'
import { type Metrics, residentBytes } from '../telemetry/metrics.ts'

export interface OverloadLimits {
  /** The maximum lag of the event loop. */
  readonly lagMsMax: Millis
  readonly memoryBytesMax: number
  /** The maximum number of waiting statements. */
  readonly statementsMax: number
}

export interface Readings {
  readonly nowMs: () => Millis
  readonly memoryBytes: () => number
  /** Collects garbage, which must not count as memory. */
  readonly collect: () => void
  readonly statementsWaiting: () => number
}

export type OverloadReason = 'event_loop' | 'memory' | 'statements'

export const LOOK_EVERY_MS = 250
/** The number of consecutive late measurements that count as overload. A single one may be just a pause. */
const LATE_LOOKS_MIN = 4
/** The number of consecutive good measurements that end an overload. */
const CALM_LOOKS_MIN = 4
/** The minimum time between collections, which stop the process for 100 ms per GB. */
const COLLECT_EVERY_MS = 5000

export class Overload {
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

  /** Measures every `LOOK_EVERY_MS`. Returns whether the state changed. */
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

/** Watches for overload, which is never reported without limits. */
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
    statements_waiting: ['statements waiting for a database connection', () => asking.waitingCount],
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

const DESCRIPTORS_LOOK_EVERY_MS = 250
/** The descriptors reserved for Postgres, DNS and files. */
export const DESCRIPTORS_RESERVED = 64
/** The number of free descriptors below which no session is admitted. Opening all takes 190 µs. */
export const DESCRIPTORS_FREE_MIN = 32

export interface Port {
  /** Stops listening, but keeps connections. */
  pause(): void
  resume(): void
  /** Closes idle keep-alive connections. */
  closeIdle(): void
}

/** Opens unused descriptors. Throws if none is free. */
export interface Opener {
  open(): number
  close(descriptor: number): void
}

const nothing: Opener = { open: () => openSync(devNull, 'r'), close: closeSync }

/**
 * Watches the free descriptors. A connection takes one before any limit counts it. When none is left, the port is
 * closed; otherwise, the event loop would spin on connections that it can't accept. A reserve remains for Postgres and
 * files.
 */
export class Descriptors {
  state: 'free' | 'few' | 'none' = 'free'
  #reserve: number[]
  readonly #port: Port
  readonly #log: Log
  readonly #opener: Opener

  constructor(port: Port, log: Log, opener: Opener = nothing) {
    this.#port = port
    this.#log = log
    this.#opener = opener
    this.#reserve = this.#take(DESCRIPTORS_RESERVED)
  }

  look(): void {
    if (this.state === 'none') this.#lookForRoom()
    else this.#lookForEnd()
  }

  stop(): void {
    this.#release(this.#reserve.splice(0))
  }

  #lookForEnd(): void {
    const spare = this.#take(DESCRIPTORS_FREE_MIN)
    this.#release(spare)
    if (spare.length === 0) return this.#close()
    const hasRoom = spare.length === DESCRIPTORS_FREE_MIN
    if (!hasRoom) this.#port.closeIdle()
    if (!hasRoom && this.state === 'free') this.#log.warn('descriptors.few', { free: spare.length })
    this.state = hasRoom ? 'free' : 'few'
  }

  #close(): void {
    this.state = 'none'
    this.#release(this.#reserve.splice(0))
    this.#port.pause()
    this.#port.closeIdle()
    this.#log.error('descriptors.none')
  }

  #lookForRoom(): void {
    this.#port.closeIdle()
    const taken = this.#take(DESCRIPTORS_RESERVED + DESCRIPTORS_FREE_MIN)
    if (taken.length < DESCRIPTORS_RESERVED + DESCRIPTORS_FREE_MIN) return this.#release(taken)
    this.#release(taken.splice(DESCRIPTORS_RESERVED))
    try {
      this.#port.resume()
    } catch (error) {
      this.#release(taken)
      return this.#log.error('descriptors.port_lost', errorFields(error))
    }
    this.#reserve = taken
    this.state = 'free'
    this.#log.info('descriptors.free')
  }

  /** Opens `count` descriptors, or as many as possible. */
  #take(count: number): number[] {
    const taken: number[] = []
    try {
      while (taken.length < count) taken.push(this.#opener.open())
    } catch {} // none is free (EMFILE or ENFILE)
    return taken
  }

  #release(descriptors: readonly number[]): void {
    for (const descriptor of descriptors) this.#opener.close(descriptor)
  }
}

interface DescriptorWatch {
  readonly areFew: boolean
  readonly isPortClosed: boolean
  stop(): void
}

export function watchDescriptors(port: Port, log: Log): DescriptorWatch {
  const descriptors = new Descriptors(port, log)
  const timer = setInterval(() => descriptors.look(), DESCRIPTORS_LOOK_EVERY_MS)
  timer.unref()
  return {
    get areFew() {
      return descriptors.state !== 'free'
    },
    get isPortClosed() {
      return descriptors.state === 'none'
    },
    stop: () => {
      clearInterval(timer)
      descriptors.stop()
    },
  }
}
