/**
 * Practises a failover to a streaming standby under load. With synchronous replication, no peer may be asked to resend.
 * With asynchronous replication, the standby is cut off before the kill, and peers must resend what it lacks.
 */
import { join } from 'node:path'
import type { BrokerProgram } from '@sealpost/broker-program'
import type { EmbeddedPostgres } from '@sealpost/embedded-pg'
import { newBrokerKeyFile, startOwnBroker } from '@sealpost/harness/programs/own-broker'
import { waitUntil } from '@sealpost/harness/programs/pace'
import { backUp, followPrimary, STANDBY, startOwnPostgres } from '@sealpost/harness/programs/postgres'
import { TcpProxy } from '@sealpost/harness/programs/proxy'
import { type Teardown, temporaryFolder } from '@sealpost/harness/programs/teardown'
import { type Database, openDatabase } from '@sealpost/pg'
import { migrate } from '@sealpost/schema'
import { clockMs } from '@sealpost/sdk'
import type { Millis } from '@sealpost/std'
import { Option } from 'commander'
import type { Drill, DrillCheck } from './drill.ts'
import { type OrderResult, OrderTraffic, orderCheck } from './order-traffic.ts'
import { deliveryCheck, PairTraffic, type TrafficOptions, type TrafficResult, trafficOptions } from './pair-traffic.ts'

export interface FailoverOptions extends TrafficOptions {
  readonly replication: 'synchronous' | 'asynchronous'
  /** Whether a broker dies with the primary, as on the same machine. */
  readonly losesBroker?: boolean
  /** How brokers find the promoted server: by a redirected address, or a URL with both servers. */
  readonly address: 'moved' | 'several'
  /** Whether an application also sends messages in its own transactions. */
  readonly orders?: boolean
}

interface FailoverResult extends TrafficResult {
  /** The number of acknowledged messages that the standby lacked. */
  readonly ackedBeyondStandby: number
  /** The number of brokers that exited by themselves. */
  readonly brokerExits: number
  /** The number of messages that peers resent because of the restored database. */
  readonly resends: number
  readonly peersTold: number
  readonly orders: OrderResult | null
  /** The time from the promotion to the first acknowledgement. */
  readonly firstAckMs: Millis
  /** The time from the promotion until every sender had an acknowledgement. */
  readonly allAckMs: Millis
  readonly killToPromotedMs: Millis
  /** Database and broker events by name, such as `database.kept`, in all logs. */
  readonly events: Readonly<Record<string, number>>
}

const FIRST_ACK_MS_MAX = 2_000
const CALM_MS = 2_000
/** Longer than the brokers' checks of the database take. */
const OBSERVED_MS = 11_000
/** The number of messages that the cut-off standby must lack. */
const MISSED = 200
const OUTAGE_MS = 500
const PROMOTE_WITHIN_MS = 120_000

export const failoverDrill: Drill<FailoverOptions> = {
  name: 'failover',
  description: 'Kill the primary of a replicated Postgres under load and promote its standby.',
  configure: (command) =>
    trafficOptions(
      command
        .addOption(
          new Option('--replication <kind>', 'asynchronous: the standby misses the last commits')
            .choices(['synchronous', 'asynchronous'])
            .default('synchronous'),
        )
        .addOption(
          new Option('--address <kind>', 'several: a URL with both servers; moved: one address that leads to either')
            .choices(['moved', 'several'])
            .default('moved'),
        ),
      { brokers: 3, brokersMin: 1, peers: 60, peersMin: 2, rate: 600 },
    )
      .option('--orders', 'also run an application that sends messages in its own transactions')
      .option('--loses-broker', 'kill a broker together with the primary; the others then start a new incarnation'),
  run: async (options, teardown) => {
    const result = await drillFailover(options, teardown)
    return { result, checks: checksOf(options, result) }
  },
}

function checksOf(options: FailoverOptions, result: FailoverResult): DrillCheck[] {
  const { brokerExits, resends, peersTold, firstAckMs, allAckMs, killToPromotedMs, ackedBeyondStandby } = result
  const hasEverything = options.replication === 'synchronous' && !options.losesBroker
  const resent = `${peersTold} peers were notified of a restore and resent ${resends} acknowledged messages`
  const times = `the first ack followed the promotion by ${firstAckMs} ms, the first ack of the last sender by ${allAckMs} ms`
  return [
    [brokerExits === 0, `${brokerExits} of ${options.brokers} brokers exited`],
    hasEverything
      ? [resends + peersTold === 0, resent]
      : [resends >= ackedBeyondStandby, `the standby missed ${ackedBeyondStandby} acknowledged messages; ${resent}`],
    [
      !hasEverything || firstAckMs <= FIRST_ACK_MS_MAX,
      `${times}; the promotion ended ${killToPromotedMs} ms after the kill`,
    ],
    deliveryCheck(result.sent, result),
    ...(result.orders ? [orderCheck(result.orders)] : []),
  ]
}

export async function drillFailover(options: FailoverOptions, teardown: Teardown): Promise<FailoverResult> {
  const site = await ReplicatedSite.open(options, teardown)
  const traffic = await PairTraffic.open(options.peers, site, teardown)
  const orders = options.orders ? await OrderTraffic.open(site.brokers[0]!, site.databaseUrl, teardown) : null
  traffic.begin(options.rate)
  orders?.begin()
  await Bun.sleep(CALM_MS)
  const ackedBeyondStandby = options.replication === 'asynchronous' ? await cutOffStandby(site, traffic) : 0
  const killedAtMs = clockMs()
  if (options.losesBroker) await site.killBroker()
  await site.killPrimary()
  await Bun.sleep(OUTAGE_MS)
  await site.promote()
  const promotedAtMs = clockMs()
  const firstAcksMs = () => traffic.firstAcksSince(promotedAtMs)
  await waitUntil('every sender has an ack again', () => Math.max(...firstAcksMs()) < Infinity)
  await Bun.sleep(OBSERVED_MS)
  return {
    ...(await traffic.finish()),
    orders: orders && (await orders.finish()),
    ackedBeyondStandby,
    brokerExits: site.exits,
    resends: traffic.total(({ reoffered }) => reoffered),
    peersTold: traffic.total(({ restored }) => restored),
    firstAckMs: Math.min(...firstAcksMs()),
    allAckMs: Math.max(...firstAcksMs()),
    killToPromotedMs: Math.round(promotedAtMs - killedAtMs),
    events: Object.fromEntries(site.events),
  }
}

/** Cuts the standby off until it lacks enough commits. @returns how many acknowledged messages it lacks */
async function cutOffStandby(site: ReplicatedSite, traffic: PairTraffic): Promise<number> {
  site.cutOffStandby()
  const acked = () => traffic.total(({ ackedAtMs }) => ackedAtMs.length)
  const before = acked()
  await waitUntil('the standby misses commits', () => acked() >= before + MISSED)
  return acked() - before
}

interface SiteParts {
  readonly keyFile: string
  readonly primary: EmbeddedPostgres
  readonly standby: EmbeddedPostgres
  readonly replication: TcpProxy
  /** The proxy between the brokers and the current primary. */
  readonly address: TcpProxy
  readonly databaseUrl: string
  readonly database: Database
  readonly teardown: Teardown
}

class ReplicatedSite {
  readonly brokers: BrokerProgram[] = []
  readonly events = new Map<string, number>()
  exits = 0
  readonly #parts: SiteParts

  private constructor(parts: SiteParts) {
    this.#parts = parts
  }

  static async open(options: FailoverOptions, teardown: Teardown): Promise<ReplicatedSite> {
    const primary = await startOwnPostgres(teardown, { settings: { shared_buffers: '64MB' } })
    await migrate(primary.url)
    const replication = await proxyTo(primary.port, teardown)
    const standbyFolder = join(await temporaryFolder('drill', teardown), 'standby')
    await backUp(primary, standbyFolder, 'standby')
    const standby = await teardown.startingProgram(followPrimary(standbyFolder, primary, replication.port))
    const database = await openDatabase(primary.url, { connections: 1 })
    teardown.add({ end: () => database.close() })
    await waitUntil('the standby streams', () => isStreaming(database))
    if (options.replication === 'synchronous') await commitSynchronously(database)
    const address = await proxyTo(primary.port, teardown)
    const ports = options.address === 'several' ? [standby.port, primary.port] : [address.port]
    const databaseUrl = urlWithPorts(primary, ports)
    const keyFile = await newBrokerKeyFile(teardown)
    const parts = { keyFile, primary, standby, replication, address, databaseUrl, database, teardown }
    const site = new ReplicatedSite(parts)
    for (let no = 0; no < options.brokers; no++) site.brokers.push(await site.#startBroker())
    return site
  }

  get database(): Database {
    return this.#parts.database
  }
  /** The URL that leads to the current primary. */
  get databaseUrl(): string {
    return this.#parts.databaseUrl
  }

  cutOffStandby(): void {
    this.#parts.replication.set({ is: 'down' })
    this.#parts.replication.cut()
  }

  async killBroker(): Promise<void> {
    const killed = this.brokers.pop()!
    killed.kill()
    await killed.exited
    this.exits -= 1
  }

  /** Kills the postmaster and all backends. */
  async killPrimary(): Promise<void> {
    const { database, primary, address, standby } = this.#parts
    const rows = await database.run((sql) => sql<{ pid: number }[]>`select pid from pg_stat_activity`)
    for (const pid of [primary.pid, ...rows.map((row) => row.pid)]) killIfRunning(pid)
    await primary.exited
    address.targetPort = standby.port
  }

  async promote(): Promise<void> {
    const { standby } = this.#parts
    const database = await openDatabase(standby.url, { connections: 1, queryTimeoutMs: PROMOTE_WITHIN_MS })
    await database.run((sql) => sql.unsafe(`set statement_timeout = 0; select pg_promote(true, 60)`).simple())
    await database.close()
  }

  async #startBroker(): Promise<BrokerProgram> {
    const { keyFile, databaseUrl, teardown } = this.#parts
    const env = { BROKER_KEY_FILE: keyFile, LIMITS: 'off', PUBLIC_URL: 'ws://127.0.0.1:0' }
    const broker = await startOwnBroker({ databaseUrl, env, onLine: (line) => this.#countEvent(line) }, teardown)
    void broker.exited.then(() => {
      this.exits += 1
    })
    return broker
  }

  #countEvent(line: string): void {
    const event = /"event":"(database\.\w+|broker\.\w+)"/.exec(line)?.[1]
    if (event) this.events.set(event, (this.events.get(event) ?? 0) + 1)
  }
}

function urlWithPorts({ url }: EmbeddedPostgres, ports: readonly number[]): string {
  const { username, password, pathname } = new URL(url)
  return `postgres://${username}:${password}@${ports.map((port) => `127.0.0.1:${port}`).join()}${pathname}`
}

async function proxyTo(port: number, teardown: Teardown): Promise<TcpProxy> {
  const proxy = await TcpProxy.open(port)
  teardown.add({ end: () => proxy.close() })
  return proxy
}

async function isStreaming(database: Database): Promise<boolean> {
  const rows = await database.run(
    (sql) => sql`select from pg_stat_replication where application_name = ${STANDBY} and state = 'streaming'`,
  )
  return rows.length === 1
}

/** Makes commits wait for the standby's disk. */
async function commitSynchronously(database: Database): Promise<void> {
  await database.run((sql) => sql.unsafe(`alter system set synchronous_standby_names = '${STANDBY}'`))
  await database.run((sql) => sql.unsafe('select pg_reload_conf()'))
  await waitUntil('commits are synchronous', async () => {
    const rows = await database.run((sql) => sql`select from pg_stat_replication where sync_state = 'sync'`)
    return rows.length === 1
  })
}

function killIfRunning(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // the backend has exited in the meantime
  }
}
