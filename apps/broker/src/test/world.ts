/** Provides tests with a world: a database, a broker process, meshes and enrolled peers. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { bindBoxKey, generateIdentity, generateSigningKeys, type Identity, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { type Database, openDatabase } from '@sealpost/pg'
import { type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import { scratchWithLogins } from '@sealpost/schema/testing'
import { type MeshId, toHex } from '@sealpost/std'
import { addMembers, createMesh } from '@sealpost/store'
import { BrokerProcess, type Environment, until } from './process.ts'
import { type Place, WireClient } from './wire.ts'

export { BrokerProcess, type Place, until }

const FAR_MS = 4_000_000_000_000

/** A tuple for small numbers, whose items can be named. */
export type Several<T, N extends number> = N extends 2 ? [T, T] : N extends 3 ? [T, T, T] : N extends 4 ? [T, T, T, T] : T[] // biome-ignore format: one thing

/** A broker on a database, shared by worlds even after a restart. */
interface Host {
  readonly db: Database
  readonly databaseUrl: string
  readonly env: Environment
  broker: BrokerProcess
}

export class World implements AsyncDisposable {
  readonly meshId: MeshId
  private readonly host: Host
  private readonly closers: (() => Promise<unknown>)[]
  private readonly peers: Closable[] = []
  /** The meshes that `count` counts; null for all. */
  private readonly counted: MeshId[] | null
  /** Prepared members for `enrol`. */
  private readonly ahead: Identity[] = []

  private constructor(
    host: Host,
    meshId: MeshId,
    { closers, counted }: { closers: World['closers']; counted: World['counted'] },
  ) {
    this.host = host
    this.meshId = meshId
    this.closers = closers
    this.counted = counted
  }

  get broker(): BrokerProcess {
    return this.host.broker
  }
  get db(): Database {
    return this.host.db
  }
  get databaseUrl(): string {
    return this.host.databaseUrl
  }

  /** `database`: an existing one with a broker's privileges, which the world drops at its end. */
  static async open(env: Environment = {}, database?: ScratchDatabase): Promise<World> {
    await ready()
    const closers: World['closers'] = []
    try {
      const {
        url: databaseUrl,
        brokerUrl,
        adminUrl,
        drop,
      } = database ? { brokerUrl: database.url, adminUrl: database.url, ...database } : await ownDatabase()
      closers.push(drop)
      const folder = await temporaryFolder()
      closers.push(() => rm(folder, { recursive: true, force: true }))
      const db = await openDatabase(databaseUrl, { connections: 2, applicationName: 'test', ...unhurried })
      closers.push(() => db.close())
      const urls = { DATABASE_URL: brokerUrl, ADMIN_DATABASE_URL: adminUrl }
      const whole = { ...urls, BROKER_KEY_FILE: await brokerKeyFile(folder), LIMITS: 'off', ...env }
      const broker = await BrokerProcess.start(whole)
      const host: Host = { broker, db, databaseUrl, env: whole }
      closers.push(() => host.broker.kill())
      return new World(host, await newMesh(db), { closers, counted: null })
    } catch (error) {
      await closeAll(closers)
      throw error
    }
  }

  /** Returns a world with a new mesh on the same broker. It closes only what it has opened. */
  async inNewMesh(): Promise<World> {
    if (!this.broker.isAlive) await this.restart()
    const meshId = await newMesh(this.db)
    return new World(this.host, meshId, { closers: [], counted: [meshId] })
  }

  async restart(): Promise<void> {
    const { host } = this
    await host.broker.exited
    host.broker = await until('the broker starts on its former port', () => startOnPort(host.env, host.broker.port))
  }

  /** Starts another process on the same database and key. */
  async secondShard(env: Environment = {}): Promise<BrokerProcess> {
    const shard = await BrokerProcess.start({ ...this.host.env, ...env })
    this.closers.push(() => shard.kill())
    return shard
  }

  async mesh(): Promise<MeshId> {
    const meshId = await newMesh(this.db)
    this.counted?.push(meshId)
    return meshId
  }

  async enrol(meshId: MeshId = this.meshId, given?: Identity): Promise<Place> {
    const ready = meshId === this.meshId && !given ? this.ahead.pop() : undefined
    if (ready) return this.place(ready)
    const identity = given ?? generateIdentity()
    await addMembers(this.db, meshId, [bindBoxKey(identity, meshId, FAR_MS)])
    return this.place(identity, meshId)
  }

  /** Connects a peer on a bare socket; without a place, a new member. */
  async wire(place?: Place, options?: Parameters<typeof WireClient.enter>[1]): Promise<WireClient> {
    const client = await WireClient.enter(place ?? (await this.enrol()), options)
    this.closers.push(async () => client.destroy())
    return client
  }

  /** Closes the peer with this world, concurrently with others, because each may take two seconds. */
  closing<P extends Closable>(peer: P): P {
    this.peers.push(peer)
    return peer
  }

  /** Prepares members for the next calls of `enrol`, in one statement. */
  async enrolAhead(count: number): Promise<void> {
    const identities = Array.from({ length: count - this.ahead.length }, generateIdentity)
    await addMembers(
      this.db,
      this.meshId,
      identities.map((identity) => bindBoxKey(identity, this.meshId, FAR_MS)),
    )
    this.ahead.push(...identities)
  }

  async enrolMany<const N extends number>(count: N): Promise<Several<Place, N>> {
    await this.enrolAhead(count)
    const places = await Promise.all(Array.from({ length: count }, () => this.enrol()))
    return places as Several<Place, N>
  }

  async enrolAdmin(name: string): Promise<Place> {
    const identity = generateIdentity()
    await addMembers(this.db, this.meshId, [{ ...bindBoxKey(identity, this.meshId, FAR_MS), name, role: 'admin' }])
    return this.place(identity)
  }

  place(identity: Identity, meshId: MeshId = this.meshId): Place {
    return { url: this.broker.url, brokerKey: this.broker.key, meshId, identity }
  }

  /** Counts a table's rows, of this world's meshes only if its broker is shared. */
  async count(table: 'message_queue' | 'dead_letter' | 'dedupe_ledger' | 'shared_body'): Promise<number> {
    const where = this.counted ? `where mesh_id in (${this.counted.map((meshId) => `'${meshId}'`)})` : ''
    const [row] = await this.db.run((sql) => sql.unsafe<{ n: number }[]>(`select count(*)::int as n from ${table} ${where}`)) // biome-ignore format: one thing
    return row!.n
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.closers.push(() => Promise.all(this.peers.map((peer) => peer.close())))
    await closeAll(this.closers)
  }
}

interface Closable {
  close(): Promise<unknown>
}

async function ownDatabase() {
  const { url, broker, admin, drop } = await scratchWithLogins()
  return { url, brokerUrl: broker, adminUrl: admin, drop }
}

export function temporaryFolder(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'sealpost-test-'))
}

export async function brokerKeyFile(folder: string): Promise<string> {
  await ready()
  const path = join(folder, `broker-${crypto.randomUUID()}.json`)
  await writeKeyFile(path, { kind: 'broker', signing: generateSigningKeys() })
  return path
}

async function newMesh(db: Database): Promise<MeshId> {
  const meshId = toHex(crypto.getRandomValues(new Uint8Array(16))) as MeshId
  await createMesh(db, { meshId, name: `mesh ${meshId.slice(0, 8)}` })
  return meshId
}

/** Closes everything in reverse order. Throws the first failure. */
async function closeAll(closers: (() => Promise<unknown>)[]): Promise<void> {
  const failures: unknown[] = []
  for (const close of closers.splice(0).reverse()) await close().catch((error) => failures.push(error))
  if (failures.length > 0) throw failures[0]
}

/** Starts a broker on the port; null while another program's outgoing connection uses it. */
async function startOnPort(env: Environment, port: number): Promise<BrokerProcess | null> {
  try {
    return await BrokerProcess.start({ ...env, PORT: String(port) })
  } catch (error) {
    if (String(error).includes('Another program listens')) return null
    throw error
  }
}
