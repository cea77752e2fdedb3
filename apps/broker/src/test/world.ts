/** For tests: a world of one's own, with a database, a broker process on it, meshes and enrolled peers. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { bindBoxKey, generateIdentity, generateSigningKeys, type Identity, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { type Database, openDatabase } from '@sealpost/pg'
import { type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import { scratchWithLogins } from '@sealpost/schema/testing'
import { type MeshId, type PeerKey, toHex } from '@sealpost/std'
import { addMembers, createMesh } from '@sealpost/store'
import { BrokerProcess, type Environment } from './process.ts'

const FAR_MS = 4_000_000_000_000

/** Where a peer connects: what the SDK's `connect` and the wire client take. */
export interface Place {
  readonly url: string
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly identity: Identity
}

export class World implements AsyncDisposable {
  broker: BrokerProcess
  readonly db: Database
  readonly databaseUrl: string
  readonly meshId: MeshId
  private readonly env: Environment
  private readonly closers: (() => Promise<unknown>)[]
  /** Members of the mesh that nobody is yet. */
  private readonly ahead: Identity[] = []

  private constructor(
    parts: Pick<World, 'broker' | 'db' | 'databaseUrl' | 'meshId'>,
    env: Environment,
    closers: World['closers'],
  ) {
    this.broker = parts.broker
    this.db = parts.db
    this.databaseUrl = parts.databaseUrl
    this.meshId = parts.meshId
    this.env = env
    this.closers = closers
  }

  /** `database`: another than one of its own, in which its broker has the rights of a broker; the world drops it. */
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
      const world = new World({ broker, db, databaseUrl, meshId: await newMesh(db) }, whole, closers)
      closers.push(() => world.broker.kill())
      return world
    } catch (error) {
      await closeAll(closers)
      throw error
    }
  }

  /** Another process on the same port, database and key. */
  async restart(): Promise<void> {
    await this.broker.exited
    this.broker = await BrokerProcess.start({ ...this.env, PORT: String(this.broker.port) })
  }

  /** One more process on the same database, with the same key. */
  async secondShard(env: Environment = {}): Promise<BrokerProcess> {
    const shard = await BrokerProcess.start({ ...this.env, ...env })
    this.closers.push(() => shard.kill())
    return shard
  }

  mesh(): Promise<MeshId> {
    return newMesh(this.db)
  }

  async enrol(meshId: MeshId = this.meshId, given?: Identity): Promise<Place> {
    const ready = meshId === this.meshId && !given ? this.ahead.pop() : undefined
    if (ready) return this.place(ready)
    const identity = given ?? generateIdentity()
    await addMembers(this.db, meshId, [bindBoxKey(identity, meshId, FAR_MS)])
    return this.place(identity, meshId)
  }

  /** Prepares this number of members for the next calls of `enrol`: in one statement instead of one commit each. */
  async enrolAhead(count: number): Promise<void> {
    const identities = Array.from({ length: count - this.ahead.length }, generateIdentity)
    await addMembers(
      this.db,
      this.meshId,
      identities.map((identity) => bindBoxKey(identity, this.meshId, FAR_MS)),
    )
    this.ahead.push(...identities)
  }

  /** One who may invite and revoke. */
  async enrolAdmin(name: string): Promise<Place> {
    const identity = generateIdentity()
    await addMembers(this.db, this.meshId, [{ ...bindBoxKey(identity, this.meshId, FAR_MS), name, role: 'admin' }])
    return this.place(identity)
  }

  place(identity: Identity, meshId: MeshId = this.meshId): Place {
    return { url: this.broker.url, brokerKey: this.broker.key, meshId, identity }
  }

  /** Rows of a table of ours, in all meshes. */
  async count(table: 'message_queue' | 'dead_letter' | 'dedupe_ledger' | 'shared_body'): Promise<number> {
    const [row] = await this.db.run((sql) => sql.unsafe<{ n: number }[]>(`select count(*)::int as n from ${table}`))
    return row!.n
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await closeAll(this.closers)
  }
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

/** In the reverse order; the first failure is thrown after all were tried. */
async function closeAll(closers: (() => Promise<unknown>)[]): Promise<void> {
  const failures: unknown[] = []
  for (const close of closers.splice(0).reverse()) await close().catch((error) => failures.push(error))
  if (failures.length > 0) throw failures[0]
}
