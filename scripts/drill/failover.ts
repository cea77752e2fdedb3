/**
 * The drill of a failover: some brokers on a primary with a streaming standby, under mail. The primary is killed, the
 * standby is promoted. With synchronous replication nothing that was acknowledged is missing there, and nobody may be asked
 * to send it again. Without, the standby is cut off before, so that it misses the last of it: peers must send that again.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { BrokerProgram } from '@sealpost/broker/program'
import { addMembers, createMesh, type Database, migrate, openDatabase } from '@sealpost/db'
import { type EmbeddedPostgres, startEmbedded } from '@sealpost/db/embedded'
import { generateSigningKeys, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { type Millis, OperatingError } from '@sealpost/std'
import { startOwnBroker } from '../lib/own-broker.ts'
import type { Teardown } from '../lib/teardown.ts'
import { inventMesh } from '../load/seed.ts'
import { TcpProxy } from '../torture/proxy.ts'
import { backUp, followPrimary, STANDBY } from './files.ts'
import type { Order } from './order.ts'
import { Talk } from './talk.ts'

export interface FailoverOptions {
  readonly replication: 'synchronous' | 'asynchronous'
  readonly brokers: number
  /** Half of them write, each to one of the others. */
  readonly peers: number
  /** Messages a second of all together. */
  readonly rate: number
  /** Whether one of the brokers is killed with the primary, as on a machine that both were on. */
  readonly losesBroker: boolean
  /** How brokers find the server that took over: `moved`, one address that leads to it, or `several`, a URL of both. */
  readonly address: 'moved' | 'several'
}

export interface FailoverResult extends Order {
  readonly sent: number
  /** Acknowledged before the kill, by commits that the standby had not received. */
  readonly ackedBeyondStandby: number
  /** But for one that was killed. */
  readonly brokerExits: number
  /** Of acknowledged messages: those that peers sent again because they were told that the database was restored. */
  readonly resends: number
  readonly peersTold: number
  /** From the end of the promotion to the first acknowledgement, and to the first of each sender's. */
  readonly firstAckMs: Millis
  readonly allAckMs: Millis
  readonly killToPromotedMs: Millis
  /** `database.kept`, `database.replaced` and the like, of all brokers. */
  readonly events: Readonly<Record<string, number>>
}

const PEERS_PER_MESH = 10
const AROUND_MS = 2_000
/** Longer than the period at which brokers look at the database. */
const WATCHED_MS = 11_000
const BEYOND = 200
const OUTAGE_MS = 500
const LOOK_MS = 10
const PATIENCE_MS = 120_000

export async function drillFailover(options: FailoverOptions, teardown: Teardown): Promise<FailoverResult> {
  await ready()
  const site = await Site.open(options, teardown)
  const talks = await site.talks(options.peers)
  teardown.add({ end: async () => void (await Promise.all(talks.map((talk) => talk.close()))) })
  const traffic = talks.map((talk) => talk.keepSending(options.rate / talks.length))
  const sum = (of: (talk: Talk) => number) => talks.reduce((total, talk) => total + of(talk), 0)
  await delay(AROUND_MS)
  const ackedBeyondStandby =
    options.replication === 'asynchronous' ? await lag(site, () => sum((talk) => talk.acked)) : 0
  const killedAtMs = performance.now()
  if (options.losesBroker) await site.killBroker()
  await site.killPrimary()
  await delay(OUTAGE_MS)
  await site.promote()
  const promotedAtMs = performance.now()
  const firstAckMs = () => talks.map((talk) => Math.round(talk.firstAckSince(promotedAtMs) - promotedAtMs))
  await until('every sender is served again', () => Math.max(...firstAckMs()) < Infinity)
  await delay(WATCHED_MS)
  for (const talk of talks) talk.isOver = true
  await Promise.all(traffic)
  await until('all has come', () => talks.every((talk) => talk.hasAll))
  return {
    sent: sum(({ sent }) => sent),
    ackedBeyondStandby,
    brokerExits: site.exits,
    resends: sum(({ reoffered }) => reoffered),
    peersTold: sum(({ restored }) => restored),
    firstAckMs: Math.min(...firstAckMs()),
    allAckMs: Math.max(...firstAckMs()),
    killToPromotedMs: Math.round(promotedAtMs - killedAtMs),
    events: Object.fromEntries(site.events),
    lost: sum((talk) => talk.order.lost),
    duplicates: sum((talk) => talk.order.duplicates),
    misordered: sum((talk) => talk.order.misordered),
  }
}

/** Cuts the standby off and waits for commits that it does not get. */
async function lag(site: Site, acked: () => number): Promise<number> {
  site.cutOffStandby()
  const before = acked()
  await until('there are commits that the standby misses', () => acked() >= before + BEYOND)
  return acked() - before
}

/** Two servers, the address that brokers know, and the brokers. */
class Site {
  readonly brokers: BrokerProgram[] = []
  /** Of the logs, by name. */
  readonly events = new Map<string, number>()
  exits = 0
  private readonly parts: SiteParts

  private constructor(parts: SiteParts) {
    this.parts = parts
  }

  static async open({ brokers, replication, address: kind }: FailoverOptions, teardown: Teardown): Promise<Site> {
    const folder = await mkdtemp(join(tmpdir(), 'sealpost-drill-'))
    teardown.add({ end: () => rm(folder, { recursive: true, force: true }) })
    const keyFile = join(folder, 'broker.json')
    await writeKeyFile(keyFile, { kind: 'broker', signing: generateSigningKeys() })
    const primary = await serverOf(startEmbedded({ settings: SMALL }), teardown)
    await migrate(primary.url)
    const replicating = await proxyTo(primary.port, teardown)
    await backUp(primary, join(folder, 'standby'), 'standby')
    const standby = await serverOf(followPrimary(join(folder, 'standby'), primary, replicating.port), teardown)
    const db = await openDatabase(primary.url, { connections: 1 })
    teardown.add({ end: () => db.close() })
    await until('the standby streams', async () => (await streams(db)) === 1)
    if (replication === 'synchronous') await commitOn(db)
    const address = await proxyTo(primary.port, teardown)
    const ports = kind === 'several' ? [standby.port, primary.port] : [address.port]
    const databaseUrl = urlOf(primary, ports)
    const site = new Site({ keyFile, primary, standby, replicating, address, databaseUrl, db, teardown })
    for (let no = 0; no < brokers; no++) site.brokers.push(await site.startBroker())
    return site
  }

  async talks(peers: number): Promise<Talk[]> {
    const talks: Talk[] = []
    for (let no = 0; talks.length * 2 < peers; no++) {
      const mesh = await inventMesh(Math.min(PEERS_PER_MESH, peers - talks.length * 2))
      await createMesh(this.parts.db, { meshId: mesh.meshId, name: 'drill' })
      await addMembers(this.parts.db, mesh.meshId, mesh.bindings)
      const { url, brokerKey } = this.brokers[no % this.brokers.length]!
      const place = { url, brokerKey, meshId: mesh.meshId }
      for (let i = 0; i + 1 < mesh.secrets.length; i += 2)
        talks.push(await Talk.open(place, { from: mesh.secrets[i]!, to: mesh.secrets[i + 1]! }))
    }
    return talks
  }

  cutOffStandby(): void {
    this.parts.replicating.set({ is: 'down' })
    this.parts.replicating.cut()
  }

  async killBroker(): Promise<void> {
    const killed = this.brokers.pop()!
    killed.kill()
    await killed.exited
    this.exits -= 1
  }

  /** SIGKILL to every program of it. */
  async killPrimary(): Promise<void> {
    const { db, primary, address, standby } = this.parts
    const rows = await db.run((sql) => sql<{ pid: number }[]>`select pid from pg_stat_activity`)
    for (const pid of [primary.pid, ...rows.map((row) => row.pid)]) signal(pid)
    await primary.exited
    address.targetPort = standby.port
  }

  async promote(): Promise<void> {
    const db = await openDatabase(this.parts.standby.url, { connections: 1, queryTimeoutMs: PATIENCE_MS })
    await db.run((sql) => sql.unsafe(`set statement_timeout = 0; select pg_promote(true, 60)`).simple())
    await db.close()
  }

  private async startBroker(): Promise<BrokerProgram> {
    const { keyFile, databaseUrl, teardown } = this.parts
    const env = { BROKER_KEY_FILE: keyFile, LIMITS: 'off', PUBLIC_URL: 'ws://127.0.0.1:0' }
    const onLine = (line: string) => this.heard(line)
    const broker = await startOwnBroker({ databaseUrl, env, onLine }, teardown)
    void broker.exited.then(() => {
      this.exits += 1
    })
    return broker
  }

  private heard(line: string): void {
    const event = /"event":"(database\.\w+|broker\.\w+)"/.exec(line)?.[1]
    if (event) this.events.set(event, (this.events.get(event) ?? 0) + 1)
  }
}

interface SiteParts {
  readonly keyFile: string
  readonly primary: EmbeddedPostgres
  readonly standby: EmbeddedPostgres
  /** Between the standby and the primary. */
  readonly replicating: TcpProxy
  /** Between the brokers and whichever server is meant. */
  readonly address: TcpProxy
  readonly databaseUrl: string
  readonly db: Database
  readonly teardown: Teardown
}

function urlOf({ url }: EmbeddedPostgres, ports: readonly number[]): string {
  const { username, password, pathname } = new URL(url)
  return `postgres://${username}:${password}@${ports.map((port) => `127.0.0.1:${port}`).join()}${pathname}`
}

const SMALL = { shared_buffers: '64MB' }

async function serverOf(starting: Promise<EmbeddedPostgres>, teardown: Teardown): Promise<EmbeddedPostgres> {
  const server = await starting
  teardown.add({ end: () => server.stop(), kill: () => void server.kill() })
  return server
}

async function proxyTo(port: number, teardown: Teardown): Promise<TcpProxy> {
  const proxy = await TcpProxy.open(port)
  teardown.add({ end: () => proxy.close() })
  return proxy
}

async function streams(db: Database): Promise<number> {
  const [row] = await db.run(
    (sql) => sql<{ n: number }[]>`select count(*)::int as n from pg_stat_replication
      where application_name = ${STANDBY} and state = 'streaming'`,
  )
  return row!.n
}

/** From then on a commit is answered when the standby has it on its disk. */
async function commitOn(db: Database): Promise<void> {
  await db.run((sql) => sql.unsafe(`alter system set synchronous_standby_names = '${STANDBY}'`))
  await db.run((sql) => sql.unsafe('select pg_reload_conf()'))
  const isSynchronous = async () => {
    const rows = await db.run((sql) => sql`select from pg_stat_replication where sync_state = 'sync'`)
    return rows.length === 1
  }
  await until('commits are synchronous', isSynchronous)
}

function signal(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // it ended between the look and the signal
  }
}

async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS
  while (!(await isSo())) {
    if (performance.now() > deadline) throw new OperatingError('drill_stalled', `It did not come to pass: ${what}.`)
    await delay(LOOK_MS)
  }
}
