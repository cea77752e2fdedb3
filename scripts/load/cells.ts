/** The brokers that are started for a test, and their Postgres servers: so many shards for each cell. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { migrate } from '@sealpost/db'
import { startEmbedded } from '@sealpost/db/embedded'
import { generateSigningKeys, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { OperatingError } from '@sealpost/std'
import { shellUrl } from '../lib/embedded-url.ts'
import { startOwnBroker } from '../lib/own-broker.ts'
import type { Teardown } from '../lib/teardown.ts'
import type { BusKind } from './command.ts'
import { startNats } from './nats.ts'

export interface Postgres {
  readonly url: string
  /** How to use it from elsewhere, as lines of a shell. */
  readonly reach: readonly string[]
  readonly failed: Promise<never>
  /** Ends one that was started here, before the end of the test. */
  stop(): Promise<void>
}

export const never = new Promise<never>(() => undefined)
/** Whoever gave it knows it; it may hold a password. */
const given = (url: string): Postgres => ({ url, reach: [], failed: never, stop: () => Promise.resolve() })

export interface PostgresOptions {
  readonly databaseUrl: string | undefined
  /** One that is started here counts the time of each statement (`pg_stat_statements`). */
  readonly isCounting?: boolean
  readonly tell: (step: string) => void
}

const COUNTING = { settings: { shared_preload_libraries: 'pg_stat_statements' } }

/** The one that was given, or an embedded one. */
export async function openPostgres(
  { databaseUrl, isCounting, tell }: PostgresOptions,
  teardown: Teardown,
): Promise<Postgres> {
  if (databaseUrl) return given(databaseUrl)
  tell('starting an embedded PostgreSQL')
  const server = await teardown.starting(startEmbedded(isCounting ? COUNTING : {}), (started) => ({
    end: () => started.stop(),
    kill: () => started.kill(),
  }))
  const failed = failure(server.exited, () => 'The embedded PostgreSQL ended during the test.')
  const reach = [`DATABASE_URL=${shellUrl(server)}`]
  return { url: server.url, reach, failed, stop: () => server.stop() }
}

export interface ShardOptions {
  /** Words for Bun, before each program that is started. */
  readonly words: readonly string[]
  readonly limits: 'on' | 'off'
  readonly isThroughDrain: boolean
  /** Of each cell. */
  readonly shards: number
  /** Null: the broker's own choice. */
  readonly bus: BusKind | null
  readonly natsUrl: string | undefined
  readonly tell: (step: string) => void
}

/** One key for all of them: they are a cluster. @returns those of the first database first */
export async function startShards(databaseUrls: readonly string[], options: ShardOptions, teardown: Teardown) {
  const count = databaseUrls.length * options.shards
  options.tell(count === 1 ? 'starting a broker' : `starting ${count} brokers`)
  const folder = await teardown.starting(mkdtemp(join(tmpdir(), 'sealpost-load-')), (made) => ({
    end: () => rm(made, { recursive: true, force: true }),
  }))
  const keyFile = join(folder, 'broker.json')
  await ready()
  await writeKeyFile(keyFile, { kind: 'broker', signing: generateSigningKeys() })
  const env = { BROKER_KEY_FILE: keyFile, LIMITS: options.limits, ...(await settingsOf(options, teardown)) }
  for (const url of databaseUrls) await migrate(url)
  const urls = databaseUrls.flatMap((url) => new Array<string>(options.shards).fill(url))
  return Promise.all(
    urls.map((databaseUrl, i) => {
      const own = { ...env, SHARD_NAME: `shard-${i + 1}` }
      return startShard(databaseUrl, { env: own, words: options.words }, teardown)
    }),
  )
}

async function startShard(
  databaseUrl: string,
  options: { env: Record<string, string>; words: readonly string[] },
  teardown: Teardown,
) {
  const broker = await startOwnBroker({ databaseUrl, ...options }, teardown)
  return { ...broker, failed: failure(broker.exited, (words) => `A broker ended during the test: ${words}`) }
}

async function settingsOf(options: ShardOptions, teardown: Teardown): Promise<Record<string, string>> {
  const { isThroughDrain, bus, natsUrl } = options
  return {
    // Who sits where is the test's business: nobody is sent to another shard.
    PLACEMENT: 'any',
    ...(isThroughDrain && { BIRTH_LEASE: 'off' }),
    ...(bus && { BUS: bus }),
    ...(bus === 'nats' && { NATS_URL: natsUrl ?? (await startNats(teardown)) }),
  }
}

function failure<T>(ended: Promise<T>, sentenceOf: (lastWords: T) => string): Promise<never> {
  const failed = ended.then((lastWords) => {
    throw new OperatingError('environment_died', sentenceOf(lastWords))
  })
  failed.catch(() => undefined) // told to whoever waits for it
  return failed
}
