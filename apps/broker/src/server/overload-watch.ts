/** Detects an overload of this process, and notifies its subscribers. */

import type { Driver } from '@sealpost/driver'
import type { Database } from '@sealpost/pg'
import type { Config } from '../config/config.ts'
import type { Log } from '../telemetry/log.ts'
import { residentBytes } from '../telemetry/memory.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { LOOK_EVERY_MS, Overload } from './overload.ts'

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
