/** Brokers of a drill on one Postgres, each a process of its own, and pairs of peers in meshes on all of them. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { BrokerProgram } from '@sealpost/broker/program'
import { addMembers, createMesh, migrate, openDatabase } from '@sealpost/db'
import { startEmbedded } from '@sealpost/db/embedded'
import { generateSigningKeys, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { OperatingError } from '@sealpost/std'
import { startOwnBroker } from '../lib/own-broker.ts'
import type { Teardown } from '../lib/teardown.ts'
import { inventMesh, type Mesh } from '../load/seed.ts'
import { Talk } from './talk.ts'

const PEERS_PER_MESH = 10
const LOOK_MS = 20
const PATIENCE_MS = 120_000

export async function talksIn(cluster: Cluster, peers: number): Promise<Talk[]> {
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

export class Cluster {
  readonly brokers: BrokerProgram[] = []
  private readonly databaseUrl: string
  private readonly env: Readonly<Record<string, string>>
  private readonly teardown: Teardown

  private constructor(databaseUrl: string, env: Cluster['env'], teardown: Teardown) {
    this.databaseUrl = databaseUrl
    this.env = env
    this.teardown = teardown
  }

  /** `env` goes to each broker. */
  static async open(count: number, teardown: Teardown, env: Cluster['env'] = {}): Promise<Cluster> {
    await ready()
    const folder = await mkdtemp(join(tmpdir(), 'sealpost-drill-'))
    teardown.add({ end: () => rm(folder, { recursive: true, force: true }) })
    const BROKER_KEY_FILE = join(folder, 'broker.json')
    await writeKeyFile(BROKER_KEY_FILE, { kind: 'broker', signing: generateSigningKeys() })
    const postgres = await startEmbedded()
    teardown.add({ end: () => postgres.stop(), kill: () => void postgres.kill() })
    await migrate(postgres.url)
    const cluster = new Cluster(postgres.url, { BROKER_KEY_FILE, LIMITS: 'off', ...env }, teardown)
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

export async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS
  while (!(await isSo())) {
    if (performance.now() > deadline) throw new OperatingError('drill_stalled', `It did not come to pass: ${what}.`)
    await delay(LOOK_MS)
  }
}
