/**
 * Maintains this shard's row, and passes the live shards to the engine. An outdated list only causes additional
 * redirects.
 */
import { hostname } from 'node:os'
import type { Bus } from '@sealpost/bus'
import type { LiveShard, Placement } from '@sealpost/core'
import type { Database } from '@sealpost/pg'
import { type Millis, OperatingError, type ShardId } from '@sealpost/std'
import { removeShard, renewShardLease, type ShardRegistration, type LiveShards as Table } from '@sealpost/store'
import type { Config } from '../config/config.ts'
import type { DatabaseOrigin } from '../database/origin.ts'
import type { BrokerKeys } from '../directory/authenticator.ts'
import { errorFields, type Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'

const LEASE_MS: Millis = 6000
const RENEW_EVERY_MS: Millis = 2000
/** How long a stopping shard waits for the database before it leaves its lease to expire. */
const LEAVE_WITHIN_MS: Millis = 1000

interface Parts {
  readonly db: Database
  readonly bus: Bus
  readonly log: Log
  readonly metrics: Metrics
  readonly placed: (placement: Placement) => void
  readonly others: (shards: ReadonlySet<ShardId>) => void
  readonly origin: Pick<DatabaseOrigin, 'renewing'>
}

interface Self {
  readonly shard: ShardId
  readonly keys: BrokerKeys
  readonly port: number
}

/** Replaces port 0 with the opened port. */
function publicUrlOf({ PUBLIC_URL }: Config, port: number): string | null {
  if (PUBLIC_URL === '') return null
  const url = new URL(PUBLIC_URL)
  if (url.port !== '0') return PUBLIC_URL
  url.port = String(port)
  return url.href.replace(/\/$/, '')
}

function entryOf(config: Config, { shard, keys, port }: Self): ShardRegistration {
  const url = publicUrlOf(config, port)
  const name = config.SHARD_NAME || (url === null ? `${hostname()}:${port}` : new URL(url).host)
  const { publicKey: brokerKey, certificate } = keys
  return { name, shardId: shard, url, brokerKey, certificate: certificate?.bytes ?? null }
}

const isPlaced = ({ PLACEMENT, PUBLIC_URL }: Config): boolean =>
  PLACEMENT === 'home' || (PLACEMENT === 'auto' && PUBLIC_URL !== '')

export class ShardTable {
  private readonly self: ShardRegistration
  private readonly rules: Pick<Placement, 'servesAll' | 'movesSessions'>
  private readonly parts: Parts
  private readonly timer: ReturnType<typeof setInterval>
  private isNew = true
  private wasListed = true
  private looking: Promise<void> | null = null
  private isOver = false
  private alive = 0

  constructor(config: Config, self: Self, parts: Parts) {
    this.self = entryOf(config, self)
    this.rules = { servesAll: !isPlaced(config), movesSessions: config.REBALANCE === 'on' }
    this.parts = parts
    parts.metrics.show({ shards: ['live brokers on this database that this broker knows', () => this.alive] })
    parts.bus.subscribe({
      onHints: (_, hints) => hints.some(({ type }) => type === 'shards') && void this.look(),
      onFollowing: () => undefined,
    })
    this.timer = setInterval(() => void this.look(), RENEW_EVERY_MS)
    this.timer.unref()
  }

  /** Renews the lease and reads the live shards, also when another shard announces a change. Runs never overlap. */
  look(): Promise<void> {
    this.looking ??= this.lookOnce().finally(() => {
      this.looking = null
    })
    return this.looking
  }

  async leave(): Promise<void> {
    this.isOver = true
    clearInterval(this.timer)
    const left = removeShard(this.parts.db, this.self).catch((error) => this.complain(error))
    await Promise.race([left, new Promise((resolve) => setTimeout(resolve, LEAVE_WITHIN_MS).unref())])
    this.parts.bus.publish({ type: 'shards' })
  }

  private async lookOnce(): Promise<void> {
    const renewed = this.parts.origin.renewing()
    try {
      const table = await renewShardLease(this.parts.db, this.self, { leaseMs: LEASE_MS, isNew: this.isNew })
      renewed(table.leaseUntil)
      if (this.isNew) this.parts.bus.publish({ type: 'shards' })
      this.isNew = false
      if (this.isOver) return
      this.judge(table)
      this.parts.others(new Set(table.shards.map(({ shardId }) => shardId).filter((id) => id !== this.self.shardId)))
      this.parts.placed({ self: this.self.shardId, ...this.rules, ...liveOf(table) })
    } catch (error) {
      this.complain(error) // keep the last known list
    }
  }

  private judge({ leaseUntil, shards }: Table): void {
    const isListed = leaseUntil !== null
    this.alive = shards.length
    if (isListed === this.wasListed) return
    this.wasListed = isListed
    const fields = { name: this.self.name, shard: this.self.shardId }
    if (isListed) this.parts.log.info('shard.listed', fields)
    else this.parts.log.error('shard.name_taken', fields)
  }

  private complain(error: unknown): void {
    if (!(error instanceof OperatingError)) throw error
    this.parts.log.warn('shards.failed', errorFields(error))
  }
}

const liveOf = ({ shards, pins }: Table) => ({ shards: shards.flatMap(liveShard), pins })

const NO_CERTIFICATE = new Uint8Array()

const liveShard = ({ name, shardId, url, certificate }: ShardRegistration): LiveShard[] =>
  url === null ? [] : [{ name, shardId, url, certificate: certificate ?? NO_CERTIFICATE }]
