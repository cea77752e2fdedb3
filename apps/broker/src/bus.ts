/** By which bus this broker hears of the others, and what its operator sees of it. */
import { type Bus, GatheredBus, MemoryHub } from '@sealpost/bus'
import { postgresWire } from '@sealpost/bus/postgres'
import type { ShardId } from '@sealpost/std'
import type { Config } from './config.ts'
import { errorFields, type Log } from './log.ts'
import type { Metrics } from './metrics.ts'

interface Parts {
  readonly shard: ShardId
  readonly log: Log
  readonly metrics: Metrics
}

/** It connects by itself, and a broker serves without it: what other shards have for its peers then waits for their polls. */
export function openBus(config: Config, parts: Parts): Bus {
  const bus = config.BUS === 'memory' ? new MemoryHub().join(parts.shard) : onWire(config, parts)
  const { counters } = bus
  parts.metrics.count({
    bus_hints_published: ['hints told to other shards', () => counters.published],
    bus_hints_heard: ['hints heard of other shards', () => counters.heard],
    bus_hints_lost: ['hints that could not be told, because the bus was away', () => counters.lost],
    bus_packets_dropped: ['packets on the bus that were none of a shard', () => counters.dropped],
  })
  parts.metrics.show({ bus_up: ['whether this shard is on the bus', () => Number(bus.isUp)] })
  return bus
}

function onWire(config: Config, { shard, log }: Parts): Bus {
  return new GatheredBus({
    shard,
    open: postgresWire(config.DATABASE_URL),
    up: () => log.info('bus.up'),
    down: (error) => log.warn('bus.down', errorFields(error)),
  })
}
