/**
 * Provides the peers' environment: existing brokers and databases, or its own. A baseline (`proxy-broker.ts`) replaces
 * the broker by a relay or plain queue.
 */

import { join } from 'node:path'
import type { BrokerAddress, MeshMembers } from '@sealpost/harness/members/mesh'
import { Child } from '@sealpost/harness/programs/child'
import { postmasterOf, thisMachine } from '@sealpost/harness/programs/machine'
import { newBrokerKeyFile, startOwnBroker } from '@sealpost/harness/programs/own-broker'
import { startOwnPostgres } from '@sealpost/harness/programs/postgres'
import { forever, type Teardown } from '@sealpost/harness/programs/teardown'
import { generateSigningKeys, ready } from '@sealpost/identity'
import { migrate } from '@sealpost/schema'
import { OperatingError, type PeerKey, toHex } from '@sealpost/std'
import { Databases, LoadDatabase, type PostgresFacts } from './database.ts'
import type { ProxySetup } from './proxy-broker.ts'

/** A broker, with null for unknown values. */
export interface Shard extends BrokerAddress {
  readonly pid: number | null
  /** The address of the broker's metrics. */
  readonly adminUrl: string | null
}

export interface RunTarget {
  /** The brokers, cell by cell. */
  readonly shards: readonly Shard[]
  readonly postmasterPids: readonly number[]
  /** Null for a baseline. */
  readonly databases: Databases | null
  /** Rejects if something that the test has started ends early. */
  readonly failed: Promise<never>
}

export interface Environment extends RunTarget {
  readonly databases: Databases
  /** The database of the first cell. */
  readonly databaseUrl: string
  readonly facts: PostgresFacts
  readonly version: BrokerVersion
  /** Whether the test has started the database, which otherwise outlives it. */
  readonly isDatabaseOurs: boolean
}

interface BrokerVersion {
  /** The broker's commit; `unknown` if the test did not start it. */
  readonly gitSha: string
  readonly limits: 'on' | 'off'
  readonly brokerKey: PeerKey
}

export interface EnvironmentOptions extends ShardOptions, PostgresOptions {
  readonly cells: number
  /** Running brokers' URLs; without any, the test starts its own. */
  readonly brokerUrls: readonly string[]
  readonly brokerKey: string | undefined
  readonly brokerPids: readonly number[]
}

interface ShardOptions {
  /** Arguments for Bun, before each program's file. */
  readonly runtimeArgs: readonly string[]
  readonly limits: 'on' | 'off'
  readonly isThroughDrain: boolean
  readonly shards: number
  readonly tell: (step: string) => void
}

interface PostgresOptions {
  readonly databaseUrl: string | undefined
  /** Whether a started server loads `pg_stat_statements`. */
  readonly isCounting?: boolean
  /** The number of messages for offline peers, for which a started server has room. */
  readonly backlog?: number
  readonly tell: (step: string) => void
}

export async function openEnvironment(options: EnvironmentOptions, teardown: Teardown): Promise<Environment> {
  const cells = await Promise.all(Array.from({ length: options.cells }, () => openPostgres(options, teardown)))
  const urls = cells.map(({ url }) => url)
  const isBrokerOurs = options.brokerUrls.length === 0
  const brokers = isBrokerOurs ? await startShards(urls, options, teardown) : givenBrokers(options)
  const gitSha = (isBrokerOurs && thisMachine().gitSha) || 'unknown'
  const version = { ...(await versionOf(brokers[0]!.httpUrl)), gitSha }
  const databases = await Databases.open(urls)
  teardown.add({ end: () => databases.close() })
  const facts = await databases.facts()
  const brokerKey = (options.brokerKey ?? version.brokerKey) as PeerKey
  const failed = Promise.race([...cells, ...brokers].map((each) => each.failed))
  failed.catch(() => undefined) // the waiting caller reports the error
  return {
    shards: brokers.map(({ url, pid, adminUrl }) => ({ url, pid, adminUrl, brokerKey })),
    postmasterPids: facts.flatMap(({ backendPid }) => postmasterOf(backendPid) ?? []),
    databases,
    databaseUrl: urls[0]!,
    failed,
    facts: facts[0]!,
    version,
    isDatabaseOurs: options.databaseUrl === undefined,
  }
}

const COUNTING = { shared_preload_libraries: 'pg_stat_statements' }

/** Returns the settings in docs/OPERATIONS.md, with WAL that can grow until the messages are drained. */
const sizedFor = (backlog: number) => ({
  shared_buffers: `${256 + Math.ceil(backlog / 1000)}MB`,
  max_wal_size: `${1024 + Math.ceil(backlog / 250)}MB`,
})

interface PostgresServer {
  readonly url: string
  readonly failed: Promise<never>
  /** Stops the server early, if the test started it. */
  stop(): Promise<void>
}

/** Returns the given database, or starts an embedded one. */
async function openPostgres(
  { databaseUrl, isCounting, backlog = 0, tell }: PostgresOptions,
  teardown: Teardown,
): Promise<PostgresServer> {
  if (databaseUrl) return { url: databaseUrl, failed: forever(), stop: () => Promise.resolve() }
  tell('starting an embedded PostgreSQL')
  const server = await startOwnPostgres(teardown, {
    settings: { ...(isCounting && COUNTING), ...(backlog > 0 && sizedFor(backlog)) },
  })
  const failed = failureOf(server.exited, () => 'The embedded PostgreSQL ended during the test.')
  return { url: server.url, failed, stop: () => server.stop() }
}

/** Starts brokers of a cluster, which share a key. */
async function startShards(databaseUrls: readonly string[], options: ShardOptions, teardown: Teardown) {
  const { shards, runtimeArgs, limits, isThroughDrain, tell } = options
  const count = databaseUrls.length * shards
  tell(count === 1 ? 'starting a broker' : `starting ${count} brokers`)
  const env = {
    BROKER_KEY_FILE: await newBrokerKeyFile(teardown),
    LIMITS: limits,
    PLACEMENT: 'any', // the test decides which peer connects to which broker
    ...(isThroughDrain && { INSERT_LEASE: 'off' }),
  }
  for (const url of databaseUrls) await migrate(url)
  const urls = databaseUrls.flatMap((url) => new Array<string>(shards).fill(url))
  const starting = urls.map(async (databaseUrl, i) => {
    const own = { databaseUrl, runtimeArgs, env: { ...env, SHARD_NAME: `shard-${i + 1}` } }
    const broker = await startOwnBroker(own, teardown)
    return { ...broker, failed: failureOf(broker.exited, (output) => `A broker ended during the test: ${output}`) }
  })
  return Promise.all(starting)
}

const givenBrokers = ({ brokerUrls, brokerPids }: EnvironmentOptions) =>
  brokerUrls.map((url, i) => {
    const httpUrl = new URL(url.replace(/^ws/, 'http')).origin
    return { url, httpUrl, adminUrl: null, pid: brokerPids[i] ?? null, failed: forever() }
  })

async function versionOf(httpUrl: string): Promise<Omit<BrokerVersion, 'gitSha'>> {
  try {
    const response = await fetch(`${httpUrl}/version`, { signal: AbortSignal.timeout(5_000) })
    return (await response.json()) as Omit<BrokerVersion, 'gitSha'>
  } catch (cause) {
    throw new OperatingError('broker_unreachable', `No broker responds at ${httpUrl}/version.`, { cause })
  }
}

function failureOf<T>(ended: Promise<T>, sentenceOf: (output: T) => string): Promise<never> {
  const failed = ended.then((output) => {
    throw new OperatingError('environment_died', sentenceOf(output))
  })
  failed.catch(() => undefined) // the waiting caller reports the error
  return failed
}

/** The baselines: a relay that stores nothing, or a queue with one statement per message. */
export const YARDSTICK_NAMES = {
  relay: 'a relay that stores nothing',
  'plain-sql': 'a queue of plain SQL',
} as const
export type Yardstick = keyof typeof YARDSTICK_NAMES

const FILES: Readonly<Record<Yardstick, string>> = { relay: 'proxy-broker.ts', 'plain-sql': 'plain-queue.ts' }

export interface YardstickSetup extends PostgresOptions {
  readonly against: Yardstick
  readonly mesh: MeshMembers
  /** Arguments that are passed to Bun. */
  readonly runtimeArgs: readonly string[]
}

/** Starts a baseline with the members of the mesh. */
export async function openYardstick(
  setup: YardstickSetup,
  teardown: Teardown,
): Promise<RunTarget & { stop(): Promise<void> }> {
  const { against, mesh, runtimeArgs } = setup
  const storage = against === 'relay' ? null : await openPostgres(setup, teardown)
  const postmasterPid = storage && (await postmasterAt(storage.url))
  await ready()
  const signingSeed = toHex(generateSigningKeys().secretKey.subarray(0, 32))
  const name = `The yardstick (${YARDSTICK_NAMES[against]})`
  const child = new Child<ProxySetup, BrokerAddress>(name, join(import.meta.dirname, FILES[against]), runtimeArgs)
  const stopChild = teardown.addProgram(child)
  child.send({ signingSeed, meshId: mesh.meshId, bindings: mesh.bindings, databaseUrl: storage?.url ?? null })
  const address = await child.nextReply((reply): reply is BrokerAddress => 'url' in reply)
  return {
    shards: [{ ...address, pid: child.pid, adminUrl: null }],
    postmasterPids: postmasterPid === null ? [] : [postmasterPid],
    databases: null,
    failed: child.died,
    stop: async () => {
      await stopChild()
      await storage?.stop()
    },
  }
}

async function postmasterAt(databaseUrl: string): Promise<number | null> {
  const database = await LoadDatabase.open(databaseUrl)
  const { backendPid } = await database.facts()
  const postmasterPid = postmasterOf(backendPid) // queried while the backend exists
  await database.close()
  return postmasterPid
}
