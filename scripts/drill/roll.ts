/**
 * The drill of a deploy: some brokers on one Postgres, replaced one after the other under mail, as a supervisor does it; then
 * one of them is killed. How long did a sender wait, and when were the peers of the killed one served again?
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { BrokerProgram } from '@sealpost/broker/program'
import { addMembers, createMesh, migrate, openDatabase } from '@sealpost/db'
import { startEmbedded } from '@sealpost/db/embedded'
import { generateSigningKeys, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { type Millis, OperatingError } from '@sealpost/std'
import { startOwnBroker } from '../lib/own-broker.ts'
import type { Teardown } from '../lib/teardown.ts'
import { inventMesh, type Mesh } from '../load/seed.ts'
import type { Order } from './order.ts'
import { Talk } from './talk.ts'

export interface RollDrillOptions {
  readonly brokers: number
  /** Half of them write, each to one of the others. */
  readonly peers: number
  /** Messages a second of all together. */
  readonly rate: number
}

/** How long things took; the longest send is from its call to its ack. */
export interface RollDrillResult extends Order {
  readonly sent: number
  /** How late this program came to a send at most: on a busy machine it waits for itself. */
  readonly lateMs: Millis
  readonly roll: { readonly longestSendMs: Millis; readonly tookMs: Millis }
  readonly kill: {
    readonly longestSendMs: Millis
    /** Peers of the killed broker, and when half and all of them had a session again. */
    readonly peers: number
    readonly halfServedMs: Millis
    readonly allServedMs: Millis
  }
}

const PEERS_PER_MESH = 10
const AROUND_MS = 3_000
const LOOK_MS = 20
const PATIENCE_MS = 120_000

export async function drillRoll(options: RollDrillOptions, teardown: Teardown): Promise<RollDrillResult> {
  await ready()
  const cluster = await Cluster.open(options.brokers, teardown)
  const talks = await talksIn(cluster, options.peers)
  teardown.add({ end: async () => void (await Promise.all(talks.map((talk) => talk.close()))) })
  const traffic = talks.map((talk) => talk.keepSending(options.rate / talks.length))
  const longestMs = () => Math.round(Math.max(...talks.map((talk) => talk.takeLongestMs())))
  const areAllOnline = () => talks.every(({ isOnline }) => isOnline)
  await delay(AROUND_MS)
  longestMs()
  const rolledFromMs = performance.now()
  for (let no = 0; no < options.brokers; no++) {
    await cluster.replace(no)
    await until('all are back', areAllOnline)
    await delay(AROUND_MS)
  }
  const roll = { tookMs: Math.round(performance.now() - rolledFromMs), longestSendMs: longestMs() }
  const served = await servedAgain(cluster, talks)
  await delay(AROUND_MS)
  const kill = { ...served, longestSendMs: longestMs() }
  for (const talk of talks) talk.isOver = true
  await Promise.all(traffic)
  await until('all has come', () => talks.every((talk) => talk.hasAll))
  const sum = (of: (talk: Talk) => number) => talks.reduce((total, talk) => total + of(talk), 0)
  return {
    ...{ roll, kill },
    sent: sum(({ sent }) => sent),
    lateMs: Math.round(Math.max(...talks.map(({ lateMs }) => lateMs))),
    lost: sum((talk) => talk.order.lost),
    duplicates: sum((talk) => talk.order.duplicates),
    misordered: sum((talk) => talk.order.misordered),
  }
}

/** Kills one, and waits for those that had their sessions there. */
async function servedAgain(cluster: Cluster, talks: readonly Talk[]) {
  const killedAtMs = performance.now()
  await cluster.kill(0)
  const cutOff = () => talks.flatMap((talk) => talk.cutOffSince(killedAtMs))
  await until('its peers have noticed', () => cutOff().length > 0)
  await until('its peers are served again', () => talks.every(({ isOnline }) => isOnline))
  const took = cutOff()
    .map(({ servedAtMs }) => Math.round(servedAtMs - killedAtMs))
    .sort((a, b) => a - b)
  return { peers: took.length, halfServedMs: took[Math.floor(took.length / 2)]!, allServedMs: took.at(-1)! }
}

async function talksIn(cluster: Cluster, peers: number): Promise<Talk[]> {
  const meshes = Array.from({ length: Math.ceil(peers / PEERS_PER_MESH) }, () => inventMesh(PEERS_PER_MESH))
  const talks: Talk[] = []
  for (const [no, mesh] of (await Promise.all(meshes)).entries()) {
    await cluster.enrol(mesh)
    const { url, brokerKey } = cluster.brokers[no % cluster.brokers.length]!
    const place = { url, brokerKey, meshId: mesh.meshId }
    const opened = mesh.secrets.flatMap((secret, i) =>
      i % 2 === 0 ? [Talk.open(place, { from: secret, to: mesh.secrets[i + 1]! })] : [],
    )
    talks.push(...(await Promise.all(opened)))
  }
  return talks
}

class Cluster {
  readonly brokers: BrokerProgram[] = []
  private readonly databaseUrl: string
  private readonly env: Readonly<Record<string, string>>
  private readonly teardown: Teardown

  private constructor(databaseUrl: string, env: Cluster['env'], teardown: Teardown) {
    this.databaseUrl = databaseUrl
    this.env = env
    this.teardown = teardown
  }

  static async open(count: number, teardown: Teardown): Promise<Cluster> {
    const folder = await mkdtemp(join(tmpdir(), 'sealpost-drill-'))
    teardown.add({ end: () => rm(folder, { recursive: true, force: true }) })
    const BROKER_KEY_FILE = join(folder, 'broker.json')
    await writeKeyFile(BROKER_KEY_FILE, { kind: 'broker', signing: generateSigningKeys() })
    const postgres = await startEmbedded()
    teardown.add({ end: () => postgres.stop(), kill: () => void postgres.kill() })
    await migrate(postgres.url)
    const cluster = new Cluster(postgres.url, { BROKER_KEY_FILE, LIMITS: 'off' }, teardown)
    for (let no = 0; no < count; no++) cluster.brokers.push(await cluster.start('0'))
    await until('all know one another', () => cluster.know(count))
    return cluster
  }

  /** The next release at the same address, once the old one has ended. */
  async replace(no: number): Promise<void> {
    const { url, ...former } = this.brokers[no]!
    await former.stop()
    this.brokers[no] = await this.start(new URL(url).port)
    await until('all know one another', () => this.know(this.brokers.length))
  }

  async kill(no: number): Promise<void> {
    const [killed] = this.brokers.splice(no, 1)
    killed!.kill()
    await killed!.exited
  }

  async enrol({ meshId, bindings }: Mesh): Promise<void> {
    const db = await openDatabase(this.databaseUrl, { connections: 1 })
    try {
      await createMesh(db, { meshId, name: 'drill' })
      await addMembers(db, meshId, bindings)
    } finally {
      await db.close()
    }
  }

  private start(port: string): Promise<BrokerProgram> {
    const env = { ...this.env, PORT: port, PUBLIC_URL: `ws://127.0.0.1:${port}` }
    return startOwnBroker({ databaseUrl: this.databaseUrl, env }, this.teardown)
  }

  private async know(count: number): Promise<boolean> {
    const known = await Promise.all(
      this.brokers.map(async ({ adminUrl }) => (await (await fetch(`${adminUrl}/metrics`)).text()).match(SHARDS)?.[1]),
    )
    return known.every((number) => Number(number) === count)
  }
}

const SHARDS = /^sealpost_shards (\d+)$/m

async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS
  while (!(await isSo())) {
    if (performance.now() > deadline) throw new OperatingError('drill_stalled', `It did not come to pass: ${what}.`)
    await delay(LOOK_MS)
  }
}
