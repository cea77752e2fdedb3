/**
 * Where the peers connect to: a broker and a Postgres that are there already, or ones that are started for the test and
 * ended after it. What a run is measured against is in `yardstick.ts`.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { migrate } from '@sealpost/db'
import { startEmbedded } from '@sealpost/db/embedded'
import { generateSigningKeys, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { OperatingError, type PeerKey } from '@sealpost/std'
import { shellUrl } from '../lib/embedded-url.ts'
import { startOwnBroker } from '../lib/own-broker.ts'
import type { Teardown } from '../lib/teardown.ts'
import { LoadDatabase, type PostgresFacts } from './database.ts'
import { postmasterOf } from './proc.ts'

/** What a run needs of its surroundings. */
export interface Target {
  readonly url: string
  readonly brokerKey: PeerKey
  readonly brokerPid: number | null
  readonly postmasterPid: number | null
  /** Null for a yardstick. */
  readonly database: LoadDatabase | null
  /** Rejects when something the test started ends before its time. */
  readonly failed: Promise<never>
}

export interface Environment extends Target {
  readonly database: LoadDatabase
  readonly databaseUrl: string
  readonly facts: PostgresFacts
  readonly version: BrokerVersion
  /** For a database that outlives the test. */
  readonly isDatabaseOurs: boolean
  /** How to use it from elsewhere, as lines of a shell. */
  readonly reach: readonly string[]
}

export interface BrokerVersion {
  readonly gitSha: string
  readonly limits: 'on' | 'off'
  readonly brokerKey: PeerKey
}

export interface EnvironmentOptions {
  /** Words for Bun, before each program that is started. */
  readonly words: readonly string[]
  readonly limits: 'on' | 'off'
  readonly isThroughDrain: boolean
  readonly databaseUrl: string | undefined
  readonly brokerUrl: string | undefined
  readonly brokerKey: string | undefined
  readonly brokerPid: number | undefined
  readonly tell: (step: string) => void
}

export async function openEnvironment(options: EnvironmentOptions, teardown: Teardown): Promise<Environment> {
  const postgres = await openPostgres(options, teardown)
  const { url: databaseUrl } = postgres
  const { brokerUrl } = options
  const broker = brokerUrl ? givenBroker(brokerUrl, options) : await ownBroker(databaseUrl, options, teardown)
  const version = await versionOf(broker.httpUrl)
  const database = await LoadDatabase.open(databaseUrl)
  teardown.add({ end: () => database.close() })
  const facts = await database.facts()
  return {
    url: broker.url,
    brokerKey: (options.brokerKey ?? version.brokerKey) as PeerKey,
    brokerPid: broker.pid,
    postmasterPid: postmasterOf(facts.backendPid),
    database,
    databaseUrl,
    failed: Promise.race([postgres.failed, broker.failed]),
    facts,
    version,
    isDatabaseOurs: options.databaseUrl === undefined,
    reach: [...postgres.reach, `BROKER_WS_URL='${broker.url}'`, `BROKER_PID=${broker.pid ?? ''}`],
  }
}

export interface Postgres {
  readonly url: string
  readonly reach: readonly string[]
  readonly failed: Promise<never>
  /** Ends one that was started here, before the end of the test. */
  stop(): Promise<void>
}

const never = new Promise<never>(() => undefined)
/** Whoever gave it knows it; it may hold a password. */
const given = (url: string): Postgres => ({ url, reach: [], failed: never, stop: () => Promise.resolve() })

/** The one that was given, or an embedded one. */
export async function openPostgres(
  { databaseUrl, tell }: Pick<EnvironmentOptions, 'databaseUrl' | 'tell'>,
  teardown: Teardown,
): Promise<Postgres> {
  if (databaseUrl) return given(databaseUrl)
  tell('starting an embedded PostgreSQL')
  const server = await teardown.starting(startEmbedded(), (started) => ({
    end: () => started.stop(),
    kill: () => started.kill(),
  }))
  const failed = failure(server.exited, () => 'The embedded PostgreSQL ended during the test.')
  const reach = [`DATABASE_URL=${shellUrl(server)}`]
  return { url: server.url, reach, failed, stop: () => server.stop() }
}

function failure<T>(ended: Promise<T>, sentenceOf: (lastWords: T) => string): Promise<never> {
  const failed = ended.then((lastWords) => {
    throw new OperatingError('environment_died', sentenceOf(lastWords))
  })
  failed.catch(() => undefined) // told to whoever waits for it
  return failed
}

interface Broker {
  readonly url: string
  readonly httpUrl: string
  readonly pid: number | null
  readonly failed: Promise<never>
}

function givenBroker(url: string, { brokerPid }: EnvironmentOptions): Broker {
  const httpUrl = new URL(url.replace(/^ws/, 'http')).origin
  return { url, httpUrl, pid: brokerPid ?? null, failed: never }
}

async function ownBroker(databaseUrl: string, options: EnvironmentOptions, teardown: Teardown): Promise<Broker> {
  options.tell('starting a broker')
  const folder = await teardown.starting(mkdtemp(join(tmpdir(), 'sealpost-load-')), (made) => ({
    end: () => rm(made, { recursive: true, force: true }),
  }))
  const keyFile = join(folder, 'broker.json')
  await ready()
  await writeKeyFile(keyFile, { kind: 'broker', signing: generateSigningKeys() })
  await migrate(databaseUrl)
  const birth = options.isThroughDrain ? { BIRTH_LEASE: 'off' } : {}
  const env = { BROKER_KEY_FILE: keyFile, LIMITS: options.limits, ...birth }
  const broker = await startOwnBroker({ databaseUrl, words: options.words, env }, teardown)
  const failed = failure(broker.exited, (lastWords) => `The broker ended during the test: ${lastWords}`)
  return { ...broker, failed }
}

async function versionOf(httpUrl: string): Promise<BrokerVersion> {
  try {
    const answer = await fetch(`${httpUrl}/version`, { signal: AbortSignal.timeout(5_000) })
    return (await answer.json()) as BrokerVersion
  } catch (cause) {
    throw new OperatingError('broker_unreachable', `No broker answers at ${httpUrl}/version.`, { cause })
  }
}
