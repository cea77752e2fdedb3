/** Opens the configured bus, and exposes its metrics. */
import { readFileSync } from 'node:fs'
import { BatchingBus, type Bus, MemoryHub, type OpenBusTransport } from '@sealpost/bus'
import { natsTransport } from '@sealpost/bus/nats'
import { postgresTransport, type WatchedChannel, watchChannel } from '@sealpost/bus/postgres'
import { type MeshId, OperatingError, type ShardId } from '@sealpost/std'
import type { Config } from '../config/config.ts'
import { errorFields, type Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'

interface Parts {
  readonly incarnation: string
  readonly shard: ShardId
  readonly log: Log
  readonly metrics: Metrics
  /** A channel of the database to listen to, also if the bus is not in the database. */
  readonly watched: WatchedChannel | null
}

/** Opens the bus, which connects in the background. Until then, deliveries from other shards wait for polls. */
export function openBus(config: Config, parts: Parts): Bus {
  const { watched } = parts
  const kind = config.BUS === 'auto' ? (config.NATS_URL.length > 0 ? 'nats' : 'postgres') : config.BUS
  const bus = kind === 'memory' ? new MemoryHub().join(parts.shard) : onWire(wireOf(kind, config, parts), parts)
  const { counters } = bus
  parts.metrics.count({
    bus_hints_published: ['hints published to other shards', () => counters.published],
    bus_hints_received: ['hints received from other shards', () => counters.received],
    bus_hints_lost: [
      'hints dropped because the bus was down (ephemeral messages and presence requests only), because 50,000 hints were already waiting, or because of a shutdown',
      () => counters.lost,
    ],
    bus_packets_dropped: ['bus packets dropped because no shard of this cluster sent them', () => counters.invalid],
  })
  parts.metrics.show({ bus_up: ['1 while this shard is connected to the bus, otherwise 0', () => Number(bus.isUp)] })
  const watch = watched && kind !== 'postgres' ? watchChannel(config.DATABASE_URL, watched) : null
  return sharedBus(bus, () => watch?.close())
}

/**
 * Returns the transport. NATS servers can be shared by clusters, which differ by database. @throws OperatingError
 * `credentials_unreadable`
 */
function wireOf(kind: 'postgres' | 'nats', config: Config, { incarnation, watched }: Parts): OpenBusTransport {
  if (kind === 'postgres') return postgresTransport(config.DATABASE_URL, watched ?? undefined)
  const path = config.NATS_CREDENTIALS_FILE
  const credentials = path === '' ? {} : { credentials: credentialsIn(path) }
  return natsTransport({ urls: config.NATS_URL, cluster: incarnation, ...credentials })
}

function credentialsIn(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    throw new OperatingError('credentials_unreadable', `Can't read NATS_CREDENTIALS_FILE (${path})`)
  }
}

function onWire(open: OpenBusTransport, { shard, log }: Parts): Bus {
  return new BatchingBus({
    shard,
    open,
    up: () => log.info('bus.up'),
    down: (error) => log.warn('bus.down', errorFields(error)),
  })
}

export function sharedBus(bus: Bus, closed: () => unknown = () => undefined): Bus {
  const counts = new Map<MeshId, number>()
  const change = (meshId: MeshId, by: number): number => {
    const count = (counts.get(meshId) ?? 0) + by
    if (count > 0) counts.set(meshId, count)
    else counts.delete(meshId)
    return count
  }
  return {
    counters: bus.counters,
    get isUp() {
      return bus.isUp
    },
    get replyMs() {
      return bus.replyMs
    },
    publish: (hint) => bus.publish(hint),
    follow: (meshId) => {
      if (change(meshId, 1) === 1) bus.follow(meshId)
    },
    unfollow: (meshId) => {
      if (change(meshId, -1) === 0) bus.unfollow(meshId)
    },
    subscribe: (listener) => bus.subscribe(listener),
    close: async () => {
      await Promise.all([bus.close(), closed()])
    },
  }
}
