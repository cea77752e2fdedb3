/**
 * Where the peers connect to: brokers and a Postgres that are there already, or ones that are started for the test and
 * ended after it (`cells.ts`). What a run is measured against is in `yardstick.ts`.
 */

import type { BrokerAddress } from '@sealpost/harness/members/mesh'
import { postmasterOf } from '@sealpost/harness/programs/process-facts'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { thisMachine } from '@sealpost/harness/report/machine'
import { OperatingError, type PeerKey } from '@sealpost/std'
import { never, openPostgres, type ShardOptions, startShards } from './cells.ts'
import type { PostgresFacts } from './database.ts'
import { Databases } from './databases.ts'

/** A broker; null: not known. */
export interface Shard extends BrokerAddress {
  readonly pid: number | null
  /** Of its metrics. */
  readonly adminUrl: string | null
}

/** What a run needs of its surroundings. */
export interface RunTarget {
  /** Those of the first cell first. */
  readonly shards: readonly Shard[]
  readonly postmasterPids: readonly number[]
  /** Null for a yardstick. */
  readonly databases: Databases | null
  /** Rejects when something the test started ends before its time. */
  readonly failed: Promise<never>
}

export interface Environment extends RunTarget {
  readonly databases: Databases
  /** Of the first cell. */
  readonly databaseUrl: string
  readonly facts: PostgresFacts
  readonly version: BrokerVersion
  /** For a database that outlives the test. */
  readonly isDatabaseOurs: boolean
}

export interface BrokerVersion {
  /** `unknown` for a broker that was not started here: its `/version` names no commit. */
  readonly gitSha: string
  readonly limits: 'on' | 'off'
  readonly brokerKey: PeerKey
}

export interface EnvironmentOptions extends ShardOptions {
  readonly cells: number
  readonly databaseUrl: string | undefined
  readonly isCounting?: boolean
  /** Of running brokers; empty: they are started. */
  readonly brokerUrls: readonly string[]
  readonly brokerKey: string | undefined
  readonly brokerPids: readonly number[]
}

export async function openEnvironment(options: EnvironmentOptions, teardown: Teardown): Promise<Environment> {
  const cells = await Promise.all(Array.from({ length: options.cells }, () => openPostgres(options, teardown)))
  const urls = cells.map(({ url }) => url)
  const brokers = options.brokerUrls.length > 0 ? givenBrokers(options) : await startShards(urls, options, teardown)
  const gitSha = (options.brokerUrls.length === 0 && thisMachine().gitSha) || 'unknown'
  const version = { ...(await versionOf(brokers[0]!.httpUrl)), gitSha }
  const databases = await Databases.open(urls)
  teardown.add({ end: () => databases.close() })
  const facts = await databases.facts()
  const brokerKey = (options.brokerKey ?? version.brokerKey) as PeerKey
  const failed = Promise.race([...cells, ...brokers].map((each) => each.failed))
  failed.catch(() => undefined) // the waiting caller reports it
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

const givenBrokers = ({ brokerUrls, brokerPids }: EnvironmentOptions) =>
  brokerUrls.map((url, i) => {
    const httpUrl = new URL(url.replace(/^ws/, 'http')).origin
    return { url, httpUrl, adminUrl: null, pid: brokerPids[i] ?? null, failed: never }
  })

async function versionOf(httpUrl: string): Promise<Omit<BrokerVersion, 'gitSha'>> {
  try {
    const answer = await fetch(`${httpUrl}/version`, { signal: AbortSignal.timeout(5_000) })
    return (await answer.json()) as Omit<BrokerVersion, 'gitSha'>
  } catch (cause) {
    throw new OperatingError('broker_unreachable', `No broker answers at ${httpUrl}/version.`, { cause })
  }
}
