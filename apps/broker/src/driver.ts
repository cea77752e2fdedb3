/** Composes the driver from the real clock, the queue in Postgres, the bus and the directory. */
import type { Bus } from '@sealpost/bus'
import {
  type Clock,
  Driver,
  type DriverOptions,
  type DriverReport,
  defaultBatchLimits,
  defaultClaimLoopOptions,
} from '@sealpost/driver'
import { type Config, limitsOf } from './config/config.ts'
import { type DirectoryServices, requestsOf } from './directory/requests.ts'
import type { SpaceHints } from './spaces/space-requests.ts'
import { errorFields, type Log } from './telemetry/log.ts'
import { type Metrics, residentBytes } from './telemetry/metrics.ts'

interface Parts extends DirectoryServices {
  readonly bus: Bus
  readonly spaceHints: SpaceHints
  readonly log: Log
  readonly metrics: Metrics
}

type Facts = Omit<DriverOptions['engine'], 'limits'>

export function openDriver(config: Config, facts: Facts, parts: Parts): Driver {
  const { bus, spaceHints, metrics, queue } = parts
  const driver = new Driver(
    { clock: systemClock, random: Math.random, queue, bus, requests: requestsOf(parts), report: reportOf(parts) },
    {
      engine: { limits: limitsOf(config), ...facts },
      batch: { ...defaultBatchLimits, appendsMax: config.BATCH_ROWS },
      claims: { ...defaultClaimLoopOptions, tickMs: config.CLAIM_PAUSE_MS },
      sweepMs: config.SWEEP_MS,
    },
  )
  spaceHints.onChange((hint) => driver.step(() => driver.engine.hints.changed(hint)))
  observe(driver, metrics)
  return driver
}

const systemClock: Clock = {
  nowMs: performance.now.bind(performance),
  wallMs: Date.now,
  after: (delayMs, run) => {
    const timer = setTimeout(run, delayMs)
    return () => clearTimeout(timer)
  },
  soon: setImmediate,
}

const reportOf = ({ log, metrics, spaceHints }: Pick<Parts, 'log' | 'metrics' | 'spaceHints'>): DriverReport => ({
  failed: (event, error) => log.warn(event, errorFields(error)),
  fault: (error) =>
    queueMicrotask(() => {
      throw error // ends the process as an uncaught error
    }),
  committed: metrics.committed.bind(metrics),
  recorded: (appends) => spaceHints.recorded(appends),
  commitFailed: (batch, tookMs) => metrics.commitFailed(batch, tookMs),
  claimed: (claimed, tookMs) => metrics.claimed(claimed, tookMs),
  swept: ({ expired, dead }) => {
    if (expired + dead > 0) log.info('sweep.moved', { expired, dead })
    metrics.swept(expired, dead)
  },
  closed: (socket, code) => {
    metrics.closed(code)
    log.debug('session.closed', { socket, code })
  },
})

function observe(driver: Driver, metrics: Metrics): void {
  metrics.count({ cpu_seconds: ['CPU time of this process', cpuSeconds] })
  metrics.observe({
    counters: driver.engine.counters,
    gauges: {
      sessions: ['connections that have proven a key', () => driver.engine.sessionCount],
      connections: ['open connections, including those that have not proven a key', () => driver.connectionCount],
      memory_bytes: ['resident memory of this process', residentBytes],
      appends_waiting: ['envelopes waiting to be committed', () => driver.engine.waitingCount],
    },
  })
}

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1e6
}
