/** The brokers that are started for a test, and their Postgres servers, with the same number of shards for each cell. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startEmbedded } from '@sealpost/embedded-pg'
import { startOwnBroker } from '@sealpost/harness/programs/own-broker'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { generateSigningKeys, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { migrate } from '@sealpost/schema'
import { OperatingError } from '@sealpost/std'

export interface PostgresServer {
  readonly url: string
  readonly failed: Promise<never>
  /** Ends one that was started here, before the end of the test. */
  stop(): Promise<void>
}

export const never = new Promise<never>(() => undefined)
/** The caller knows its own URL; it may hold a password. */
const given = (url: string): PostgresServer => ({ url, failed: never, stop: () => Promise.resolve() })

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
): Promise<PostgresServer> {
  if (databaseUrl) return given(databaseUrl)
  tell('starting an embedded PostgreSQL')
  const server = await teardown.starting(startEmbedded(isCounting ? COUNTING : {}), (started) => ({
    end: () => started.stop(),
    kill: () => started.kill(),
  }))
  const failed = failure(server.exited, () => 'The embedded PostgreSQL ended during the test.')
  return { url: server.url, failed, stop: () => server.stop() }
}

export interface ShardOptions {
  /** Words for Bun, before each program that is started. */
  readonly words: readonly string[]
  readonly limits: 'on' | 'off'
  readonly isThroughDrain: boolean
  /** Of each cell. */
  readonly shards: number
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
  const env = { BROKER_KEY_FILE: keyFile, LIMITS: options.limits, ...settingsOf(options) }
  for (const url of databaseUrls) await migrate(url)
  const urls = databaseUrls.flatMap((url) => new Array<string>(options.shards).fill(url))
  return Promise.all(
    urls.map((databaseUrl, i) => {
      const own = { ...env, SHARD_NAME: `shard-${i + 1}` }
      return startShard(databaseUrl, { env: own, runtimeArgs: options.words }, teardown)
    }),
  )
}

async function startShard(
  databaseUrl: string,
  options: { env: Record<string, string>; runtimeArgs: readonly string[] },
  teardown: Teardown,
) {
  const broker = await startOwnBroker({ databaseUrl, ...options }, teardown)
  return { ...broker, failed: failure(broker.exited, (words) => `A broker ended during the test: ${words}`) }
}

function settingsOf(options: ShardOptions): Record<string, string> {
  const { isThroughDrain } = options
  return {
    // Who sits where is the test's business: nobody is sent to another shard.
    PLACEMENT: 'any',
    ...(isThroughDrain && { INSERT_LEASE: 'off' }),
  }
}

function failure<T>(ended: Promise<T>, sentenceOf: (lastWords: T) => string): Promise<never> {
  const failed = ended.then((lastWords) => {
    throw new OperatingError('environment_died', sentenceOf(lastWords))
  })
  failed.catch(() => undefined) // the waiting caller reports it
  return failed
}
