/**
 * Measures a plan's other values: the sizes of peers, waiting and remembered messages, and the cost of a handshake.
 * Sizes hardly depend on the machine.
 */

import { enrolMesh, generateMesh, identityOf, newMeshId } from '@sealpost/harness/members/mesh'
import { postgresFacts, processFacts } from '@sealpost/harness/programs/machine'
import { startOwnBroker } from '@sealpost/harness/programs/own-broker'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { ENVELOPE_OVERHEAD_BYTES, type Identity } from '@sealpost/identity'
import { type Database, openDatabase, openPipeline } from '@sealpost/pg'
import type { Append } from '@sealpost/protocol'
import { defaultQueueOptions } from '@sealpost/queue'
import { PostgresQueue, SESSION } from '@sealpost/queue/postgres'
import { migrate } from '@sealpost/schema'
import { connect } from '@sealpost/sdk'
import { assert, type EnvelopeId, type MeshId, type PeerKey, type PeerNo, type ShardId, toHex } from '@sealpost/std'
import { addMembers, createMesh } from '@sealpost/store'
import type { Sizes, Stored } from './figures.ts'

const PEERS = 20_000
const MESSAGES = 10_000
const SENDERS = 100
const SHARD = '0c'.repeat(16) as ShardId
const CHUNK = 1000
const RUNS = [
  { payloadBytes: 200, commitRows: 1 },
  { payloadBytes: 200, commitRows: 500 },
  { payloadBytes: 4000, commitRows: 500 },
] as const

/** Measures the sizes. @param databaseUrl - an empty database */
export async function measureSizes(databaseUrl: string): Promise<Omit<Sizes, 'handshake'>> {
  await migrate(databaseUrl)
  const db = await openDatabase(databaseUrl, { connections: 1 })
  const pipeline = () => openPipeline(databaseUrl, { settings: SESSION })
  const databases = {
    writing: await pipeline(),
    claiming: await pipeline(),
    collecting: await pipeline(),
    asking: await openDatabase(databaseUrl, { connections: 1, settings: SESSION }),
  }
  try {
    const world = await enrol(db)
    const stored: Stored[] = []
    const queue = new PostgresQueue(databases, SHARD, defaultQueueOptions)
    for (const run of RUNS) stored.push(await store({ ...world, db, queue }, run))
    return { peerBytes: world.peerBytes, stored }
  } finally {
    await Promise.all([db, ...Object.values(databases)].map((each) => each.close()))
  }
}

interface World {
  readonly db: Database
  readonly queue: PostgresQueue
  readonly meshId: MeshId
  readonly peers: readonly PeerNo[]
}

async function enrol(db: Database) {
  const meshId = newMeshId()
  await createMesh(db, { meshId, name: 'sizes' })
  const tables = ['member', 'session', 'sender_mark']
  const before = await bytesOf(db, tables)
  const peers: PeerNo[] = []
  for (let at = 0; at < PEERS; at += CHUNK) {
    const bindings = Array.from({ length: CHUNK }, () => ({
      peerKey: randomHex(32) as PeerKey,
      boxKey: random(32),
      boxEpoch: 1,
      notAfterMs: 1_900_000_000_000,
      signature: random(64),
    }))
    peers.push(...(await addMembers(db, meshId, bindings)))
  }
  return { meshId, peers, peerBytes: ((await bytesOf(db, tables)) - before) / PEERS }
}

/** Stores messages from a hundred senders, which peers never claim. */
async function store(world: World, { payloadBytes, commitRows }: (typeof RUNS)[number]): Promise<Stored> {
  const { db, queue } = world
  await run(db, 'truncate message_queue, dedupe_ledger')
  await run(db, 'checkpoint')
  const walBefore = await walBytes(db)
  for (let at = 0; at < MESSAGES; at += commitRows) {
    const appends = Array.from({ length: commitRows }, (_, i) => append(world, at + i, payloadBytes))
    const { outcomes } = await queue.commit({ appends, settles: [] })
    assert(
      outcomes.every(({ status }) => status === 'stored'),
      'every envelope is new',
    )
  }
  const wal = (await walBytes(db)) - walBefore
  return {
    payloadBytes,
    commitRows,
    waitingBytes: (await bytesOf(db, ['message_queue'])) / MESSAGES,
    ledgerBytes: (await bytesOf(db, ['dedupe_ledger'])) / MESSAGES,
    walBytes: wal / MESSAGES,
  }
}

function append({ meshId, peers }: World, number: number, payloadBytes: number): Append {
  return {
    meshId,
    sender: peers[number % SENDERS]!,
    recipient: peers[Math.floor(Math.random() * peers.length)]!,
    envelopeId: Bun.randomUUIDv7().replaceAll('-', '') as EnvelopeId,
    priority: 1,
    ttlSeconds: 86_400,
    envelope: random(payloadBytes + ENVELOPE_OVERHEAD_BYTES),
    insertLeaseEpoch: 0,
    insertLeaseFloor: 0,
    remoteLeaseEpoch: 0,
    terms: null,
    notBeforeMs: 0,
    body: null,
  }
}

/** Returns the size of the tables, including indexes and TOAST. */
async function bytesOf(db: Database, tables: readonly string[]): Promise<number> {
  const list = `{${tables.join(',')}}`
  const [row] = await db.run(
    (sql) => sql<{ bytes: number }[]>`
      select sum(pg_total_relation_size(name::regclass))::float8 as bytes from unnest(${list}::text[]) as name`,
  )
  return row!.bytes
}

async function walBytes(db: Database): Promise<number> {
  const [row] = await db.run(
    (sql) => sql<{ bytes: number }[]>`
      select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 as bytes`,
  )
  return row!.bytes
}

const run = (db: Database, statement: string) => db.run((sql) => sql.unsafe(statement).simple())
const random = (bytes: number) => crypto.getRandomValues(new Uint8Array(bytes))
const randomHex = (bytes: number) => toHex(random(bytes))

/** The number of handshakes before the measurement, which compile the code. */
const WARMING = 300
const MEASURED = 1000
const AT_ONCE = 16

/** Measures the CPU time of a connecting peer, up to its first claim. */
export async function measureHandshakes(
  { url: databaseUrl, pid }: { readonly url: string; readonly pid: number },
  teardown: Teardown,
): Promise<Sizes['handshake']> {
  const broker = await startOwnBroker({ databaseUrl, env: { LIMITS: 'off' } }, teardown)
  const mesh = await generateMesh(WARMING + MEASURED)
  await enrolMesh(databaseUrl, mesh, 'handshakes')
  const identities = mesh.secrets.map(identityOf)
  const cpu = () => {
    const [own, server] = [processFacts(broker.pid), postgresFacts(pid)]
    assert(own !== null && server !== null, 'the system has figures for both programs')
    return { broker: own.cpuSeconds, postgres: server.cpuSeconds }
  }
  const { url, brokerKey } = broker
  const visit = async (waiting: Identity[]): Promise<void> => {
    const visitNext = async (): Promise<void> => {
      for (let identity = waiting.shift(); identity; identity = waiting.shift()) {
        const peer = await connect({ url, brokerKey, meshId: mesh.meshId, identity })
        await peer.close()
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, visitNext))
  }
  await visit(identities.slice(0, WARMING))
  const before = cpu()
  await visit(identities.slice(WARMING))
  const after = cpu()
  return {
    brokerUs: ((after.broker - before.broker) * 1e6) / MEASURED,
    postgresUs: ((after.postgres - before.postgres) * 1e6) / MEASURED,
  }
}
