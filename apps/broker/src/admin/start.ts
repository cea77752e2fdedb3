import type { RevokedMember } from '@sealpost/core'
import type { Driver } from '@sealpost/driver'
import type { Database } from '@sealpost/pg'
import type { Config } from '../config/config.ts'
import type { DatabaseWatch } from '../database/watch.ts'
import type { Overload } from '../server/overload.ts'
import type { VersionFacts } from '../server/server.ts'
import { errorFields, type Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { AdminAuth, adminApi } from './api.ts'
import { MeshStates } from './reports/mesh-states.ts'
import { Census, databaseFigures, type QuotaParts, QuotaView } from './reports/quotas.ts'
import { Views } from './reports/views.ts'
import { BrokerSamples } from './routes.ts'

export interface AdminStart {
  readonly driver: Driver
  readonly metrics: Metrics
  readonly watch: DatabaseWatch
  readonly overload: Overload
  /** `operating` has its own connections, so that operators' and peers' queries don't delay each other. */
  readonly databases: { readonly operating: Database; readonly asking: Database }
  readonly facts: VersionFacts
  readonly config: Config
  readonly queue: QuotaParts['queue']
  readonly log: Log
}

export function openAdmin({ databases, driver, metrics, watch, overload, facts, config, queue, log }: AdminStart) {
  const { engine } = driver
  const { operating: db, asking } = databases
  const accepted = () => engine.counters.accepted
  const census = new Census(db, accepted, (error) => log.warn('census.failed', errorFields(error)))
  const depth = () => census.counted.depth
  const oldestAgeMs = () => census.ageMs(census.counted.oldestAtMs)
  metrics.show({
    queue_depth: ['waiting deliveries, as of the last count of the queue', depth],
    queue_oldest_seconds: ['age of the oldest waiting delivery', () => oldestAgeMs() / 1000],
  })
  const history = new BrokerSamples({
    metrics,
    counters: () => engine.counters,
    gauges: () => ({ sessions: engine.sessionCount, depth: depth(), oldestAgeMs: oldestAgeMs() }),
  })
  const views = new Views({
    db,
    facts,
    census,
    history,
    states: new MeshStates({ db, census, livePeers: (meshId) => engine.presence.livePeers(meshId) }),
    figures: databaseFigures(db),
    connections: () => driver.connectionCount,
    warnings: () => [...watch.warnings, ...(overload.reason ? [`overloaded: too much ${overload.reason}`] : [])],
    health: () => watch.health,
    statementsWaiting: () => asking.waitingCount,
  })
  const quotas = new QuotaView({ db, queue, census, config })
  const disconnectMembers = (members: readonly RevokedMember[]) =>
    driver.step(() => {
      for (const member of members) engine.disconnectMember(member)
    })
  return {
    app: adminApi({ db, auth: new AdminAuth(db), views, quotas, history, log, disconnectMembers }),
    stop: (): void => {
      census.stop()
      history.stop()
    },
  }
}
