/** The result as JSON: the names are part of the load test's interface, other programs read them. */

import type { ProcessUsage, ResourceUsage, UsageSample } from '@sealpost/harness/programs/resource-usage'
import type { LoadOptions } from '../command/arguments.ts'
import type { Yardstick } from '../command/command.ts'
import type { Environment } from '../environment/environment.ts'
import { type DeliveryPaths, deliveriesOf, type ShardCounts } from '../environment/shard-counts.ts'
import { crossShareOf } from '../generators/plan.ts'
import { shardOf } from '../generators/spread.ts'
import type { LoadOutcome } from './run.ts'
import type { Verdict } from './verdict.ts'

export interface LoadResult extends Omit<Verdict, 'spans' | 'arrivingMs' | 'stepsMs'> {
  readonly peers: number
  readonly messagesPerPeer: number
  readonly total: number
  /** Pushed more than once, whether the SDK hid it or not. */
  readonly duplicates: number
  /** Answered with an error: code and count. */
  readonly refused: Readonly<Record<string, number>>
  readonly messagesPerSecond: number
  /** Of the broker that had the most. */
  readonly brokerRssMbPeak: number | null
  readonly brokerFdMax: number | null
  /** Of all brokers together. */
  readonly brokerCpuSeconds: number | null
  readonly postgresCpuSeconds: number | null
  readonly postgresRssMbPeak: number | null
  /** Cores used by all generators together; and by the busiest of them. */
  readonly loadgenCpuShare: number
  readonly loadgenCpuShareMax: number
  readonly loadgenCpuSeconds: number
  readonly loadgenWasLimit: boolean
  readonly machineCoresBusy: number | null
  readonly postgresVersion: string
  readonly durability: { readonly fsync: string; readonly synchronousCommit: string }
  readonly gitSha: string
  readonly limits: 'on' | 'off'
  readonly form: string
  readonly window: number
  readonly payloadBytes: number
  readonly rate: number | null
  readonly seed: number
  readonly meshes: number
  readonly cells: number
  /** Brokers, those of the first cell first. */
  readonly shards: readonly ShardResult[]
  /** The share of messages whose sender and recipient were on two shards: 0 to 1. */
  readonly crossShare: number
  readonly generators: number
  readonly transactionsPerMessage: number | null
  readonly walBytesPerMessage: number | null
  readonly leftInQueue: number | null
  /** How the run's deliveries came to their recipients; null where a broker's metrics can't be read. */
  readonly deliveries: DeliveryPaths | null
  readonly duplicatesHidden: number
  readonly reconnects: number
  readonly tampered: number
  readonly keyExchange: { readonly messages: number; readonly ms: number } | null
  readonly samples: readonly UsageSample[]
  readonly baselineMessagesPerSecond?: number
  readonly baselineRatio?: number
  readonly baselineKind?: Yardstick
  readonly baseline?: BaselineResult
}

export interface ShardResult extends ProcessUsage, Partial<ShardCounts> {
  readonly peers: number
}

export type BaselineResult = Pick<
  LoadResult,
  | 'wallMs'
  | 'messagesPerSecond'
  | 'ackMs'
  | 'e2eMs'
  | 'callToPushMs'
  | 'delivered'
  | 'lost'
  | 'outOfOrder'
  | 'loadgenCpuSeconds'
  | 'loadgenCpuShare'
> & {
  readonly relayCpuSeconds: number | null
  readonly relayRssMbPeak: number | null
  readonly postgresCpuSeconds: number | null
}

/** The SDK's own window, when none is asked for. */
const SDK_WINDOW = 64
/** A generator that uses more of a core than this may have been what held things up. */
const BUSY_SHARE = 0.9

/** @param share - of a core, of the busiest program that makes the load */
export const wasLimit = (share: number): boolean => share > BUSY_SHARE

export function resultOf(outcome: LoadOutcome, environment: Environment, options: LoadOptions): LoadResult {
  const { plan, usage, database } = outcome
  const { spans: _, arrivingMs: __, stepsMs: ___, ...verdict } = outcome.verdict
  const { facts, version } = environment
  const generators = generatorFigures(outcome)
  const perMessage = (value: number | undefined) => (value === undefined ? null : value / Math.max(1, verdict.acked))
  return {
    peers: plan.peers,
    messagesPerPeer: plan.total / plan.peers,
    total: plan.total,
    ...verdict,
    duplicates: verdict.duplicates + generators.duplicatesHidden,
    messagesPerSecond: perSecond(outcome),
    ...brokerFigures(usage),
    postgresCpuSeconds: usage.postgres.cpuSeconds,
    postgresRssMbPeak: usage.postgres.rssMbPeak,
    ...generators,
    machineCoresBusy: usage.machineCoresBusy,
    postgresVersion: facts.postgresVersion,
    durability: facts.durability,
    gitSha: version.gitSha,
    limits: version.limits,
    form: options.form,
    window: options.window ?? SDK_WINDOW,
    payloadBytes: plan.payloadBytes,
    rate: plan.rate,
    seed: plan.seed,
    meshes: plan.spread.meshes,
    cells: plan.spread.cells,
    shards: shardResults(outcome),
    crossShare: crossShareOf(plan),
    transactionsPerMessage: perMessage(database?.transactions),
    walBytesPerMessage: perMessage(database?.walBytes),
    leftInQueue: outcome.leftInQueue,
    deliveries: deliveriesOf(outcome.shardCounts),
    keyExchange: outcome.exchange,
    samples: usage.series,
  }
}

export function withBaseline(result: LoadResult, outcome: LoadOutcome, baselineKind: Yardstick): LoadResult {
  const { wallMs, ackMs, e2eMs, callToPushMs, delivered, lost, outOfOrder } = outcome.verdict
  const { loadgenCpuSeconds, loadgenCpuShare } = generatorFigures(outcome)
  const messagesPerSecond = perSecond(outcome)
  const baseline: BaselineResult = {
    wallMs,
    messagesPerSecond,
    ackMs,
    e2eMs,
    callToPushMs,
    delivered,
    lost,
    outOfOrder,
    loadgenCpuSeconds,
    loadgenCpuShare,
    relayCpuSeconds: outcome.usage.brokers[0]!.cpuSeconds,
    relayRssMbPeak: outcome.usage.brokers[0]!.rssMbPeak,
    postgresCpuSeconds: outcome.usage.postgres.cpuSeconds,
  }
  const baselineRatio = messagesPerSecond === 0 ? 0 : result.messagesPerSecond / messagesPerSecond
  return { ...result, baselineMessagesPerSecond: messagesPerSecond, baselineRatio, baselineKind, baseline }
}

/** Whether every message arrived, once, where it should, in order and in time. */
export function isClean(result: LoadResult): boolean {
  const { lost, misdelivered, outOfOrder, timedOut, delivered, total, refused } = result
  const faults = lost + misdelivered + outOfOrder + timedOut + Object.keys(refused).length
  return faults === 0 && delivered === total
}

function perSecond({ verdict: { delivered, wallMs } }: LoadOutcome): number {
  return wallMs === 0 ? 0 : (delivered * 1000) / wallMs
}

function brokerFigures({ brokers: shards }: ResourceUsage) {
  const known = (values: readonly (number | null)[]) => values.filter((value) => value !== null)
  const most = (values: readonly number[]) => (values.length === 0 ? null : Math.max(...values))
  const cpuSeconds = known(shards.map((shard) => shard.cpuSeconds))
  return {
    brokerRssMbPeak: most(known(shards.map(({ rssMbPeak }) => rssMbPeak))),
    brokerFdMax: most(known(shards.map(({ fdMax }) => fdMax))),
    brokerCpuSeconds: cpuSeconds.length < shards.length ? null : cpuSeconds.reduce((a, b) => a + b, 0),
  }
}

function shardResults({ plan, usage, shardCounts }: LoadOutcome): ShardResult[] {
  const peers = usage.brokers.map(() => 0)
  for (let peer = 0; peer < plan.peers; peer++) peers[shardOf(plan, peer)]! += 1
  return usage.brokers.map((shard, i) => ({ peers: peers[i]!, ...shardCounts[i], ...shard }))
}

function generatorFigures({ generators, verdict, plan }: LoadOutcome) {
  const seconds = Math.max(verdict.wallMs, 1) / 1000
  const sum = (pick: (of: LoadOutcome['generators'][number]) => number) => generators.reduce((n, of) => n + pick(of), 0)
  const loadgenCpuSeconds = sum((of) => of.cpuSeconds)
  const loadgenCpuShareMax = Math.max(...generators.map((of) => of.cpuSeconds)) / seconds
  const refused: Record<string, number> = {}
  for (const { refusals } of generators)
    for (const [code, times] of Object.entries(refusals)) refused[code] = (refused[code] ?? 0) + times
  return {
    generators: generators.length,
    loadgenCpuSeconds,
    loadgenCpuShare: loadgenCpuSeconds / seconds,
    loadgenCpuShareMax,
    loadgenWasLimit: wasLimit(loadgenCpuShareMax),
    refused,
    duplicatesHidden: sum((of) => of.counters.duplicates),
    tampered: sum((of) => of.counters.tampered),
    reconnects: sum((of) => of.counters.sessions) - plan.peers,
  }
}
