/** Defines a run's result as JSON, whose field names are an interface. */

import type { ProcessUsage, ResourceUsage, UsageSample } from '@sealpost/harness/programs/machine'
import { sum } from '@sealpost/harness/report/text'
import { OperatingError } from '@sealpost/std'
import type { DatabaseCounters, PostgresFacts } from '../environment/database.ts'
import type { Environment, Shard, Yardstick } from '../environment/environment.ts'
import type { Collected, FleetSetup } from '../generators/fleet.ts'
import { crossShareOf, type Plan, SDK_WINDOW, shardOf } from '../generators/plan.ts'
import type { Verdict } from './verdict.ts'

export interface LoadOutcome {
  readonly plan: Plan
  readonly startMs: number
  readonly verdict: Verdict
  readonly usage: ResourceUsage
  readonly generators: readonly Collected[]
  /** The key exchange; null for a cold run. */
  readonly exchange: { readonly messages: number; readonly ms: number } | null
  /** Null for a baseline. */
  readonly database: DatabaseCounters | null
  /** The number of deliveries left at the broker. */
  readonly leftInQueue: number | null
  /** One entry per broker; null without access to its metrics. */
  readonly shardCounts: readonly (ShardCounts | null)[]
}

/** The run's conditions. */
export interface RunConditions extends Pick<PostgresFacts, 'postgresVersion' | 'durability'> {
  readonly gitSha: string
  readonly limits: 'on' | 'off'
}

export interface LoadResult extends Omit<Verdict, 'spans' | 'arrivingMs' | 'drain'>, RunConditions {
  readonly peers: number
  readonly messagesPerPeer: number
  readonly total: number
  /** The number of repeated pushes, even those that the SDK hid. */
  readonly duplicates: number
  /** The number of refused sends by code. */
  readonly refused: Readonly<Record<string, number>>
  readonly messagesPerSecond: number
  /** The highest value of any broker. */
  readonly brokerRssMbPeak: number | null
  readonly brokerFdMax: number | null
  /** The sum over all brokers. */
  readonly brokerCpuSeconds: number | null
  readonly postgresCpuSeconds: number | null
  readonly postgresRssMbPeak: number | null
  /** The number of cores of all generators. */
  readonly loadgenCpuShare: number
  /** The number of cores of the busiest generator. */
  readonly loadgenCpuShareMax: number
  readonly loadgenCpuSeconds: number
  readonly loadgenWasLimit: boolean
  readonly machineCoresBusy: number | null
  readonly form: string
  readonly window: number
  /** Whether a burst's peers made all calls in one turn, so that the SDK packed messages into frames. */
  readonly isPacking: boolean
  /** Whether the peers sealed with ratchets. */
  readonly isRatcheted: boolean
  readonly framesPerMessage: number
  readonly payloadBytes: number
  readonly rate: number | null
  readonly seed: number
  readonly meshes: number
  readonly cells: number
  /** The results of each broker, in the order of the cells. */
  readonly shards: readonly ShardResult[]
  /** The share of messages between shards, from 0 to 1. */
  readonly crossShare: number
  readonly generators: number
  readonly transactionsPerMessage: number | null
  readonly walBytesPerMessage: number | null
  readonly leftInQueue: number | null
  /** How deliveries reached their sessions; null without access to metrics. */
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

/** The share of a core above which a generator may have limited the run. */
const BUSY_SHARE = 0.9

/** Returns whether a generator may have limited the run. @param share - of a core, by the busiest one */
export const wasLimit = (share: number): boolean => share > BUSY_SHARE

export const conditionsOf = ({ facts, version }: Environment): RunConditions => ({
  ...{ postgresVersion: facts.postgresVersion, durability: facts.durability },
  ...{ gitSha: version.gitSha, limits: version.limits },
})

export function resultOf(
  outcome: LoadOutcome,
  environment: Environment,
  options: Pick<FleetSetup, 'form' | 'window' | 'isPacking' | 'isRatcheted'>,
): LoadResult {
  const { plan, usage, database } = outcome
  const { spans: _, arrivingMs: __, drain: ___, ...verdict } = outcome.verdict
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
    ...conditionsOf(environment),
    form: options.form,
    window: options.window ?? SDK_WINDOW,
    isPacking: options.isPacking,
    isRatcheted: options.isRatcheted,
    framesPerMessage: sum(outcome.generators.map(({ sendFrames }) => sendFrames)) / Math.max(1, verdict.sent),
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
  const { brokers, postgres } = outcome.usage
  const messagesPerSecond = perSecond(outcome)
  const baseline: BaselineResult = {
    ...{ wallMs, messagesPerSecond, ackMs, e2eMs, callToPushMs, delivered, lost, outOfOrder },
    ...{ loadgenCpuSeconds, loadgenCpuShare },
    relayCpuSeconds: brokers[0]!.cpuSeconds,
    relayRssMbPeak: brokers[0]!.rssMbPeak,
    postgresCpuSeconds: postgres.cpuSeconds,
  }
  const baselineRatio = messagesPerSecond === 0 ? 0 : result.messagesPerSecond / messagesPerSecond
  return { ...result, baselineMessagesPerSecond: messagesPerSecond, baselineRatio, baselineKind, baseline }
}

/** Returns whether every message arrived in order and on time. */
export function isClean(result: LoadResult): boolean {
  const { lost, misdelivered, outOfOrder, timedOut, delivered, total, refused } = result
  const faults = lost + misdelivered + outOfOrder + timedOut + Object.keys(refused).length
  return faults === 0 && delivered === total
}

function perSecond({ verdict: { delivered, wallMs } }: LoadOutcome): number {
  return wallMs === 0 ? 0 : (delivered * 1000) / wallMs
}

function brokerFigures({ brokers }: ResourceUsage) {
  const known = (values: readonly (number | null)[]) => values.filter((value) => value !== null)
  const highest = (values: readonly number[]) => (values.length === 0 ? null : Math.max(...values))
  const cpuSeconds = known(brokers.map((broker) => broker.cpuSeconds))
  return {
    brokerRssMbPeak: highest(known(brokers.map(({ rssMbPeak }) => rssMbPeak))),
    brokerFdMax: highest(known(brokers.map(({ fdMax }) => fdMax))),
    brokerCpuSeconds: cpuSeconds.length < brokers.length ? null : sum(cpuSeconds),
  }
}

function shardResults({ plan, usage, shardCounts }: LoadOutcome): ShardResult[] {
  const peers = usage.brokers.map(() => 0)
  for (let peer = 0; peer < plan.peers; peer++) peers[shardOf(plan, peer)]! += 1
  return usage.brokers.map((shard, i) => ({ peers: peers[i]!, ...shardCounts[i], ...shard }))
}

function generatorFigures({ generators, verdict, plan }: LoadOutcome) {
  const seconds = Math.max(verdict.wallMs, 1) / 1000
  const cpuSeconds = generators.map((each) => each.cpuSeconds)
  const counted = (name: 'duplicates' | 'tampered' | 'sessions') =>
    sum(generators.map(({ counters }) => counters[name]))
  const loadgenCpuShareMax = Math.max(...cpuSeconds) / seconds
  const refused: Record<string, number> = {}
  for (const { refusals } of generators)
    for (const [code, times] of Object.entries(refusals)) refused[code] = (refused[code] ?? 0) + times
  return {
    generators: generators.length,
    loadgenCpuSeconds: sum(cpuSeconds),
    loadgenCpuShare: sum(cpuSeconds) / seconds,
    loadgenCpuShareMax,
    loadgenWasLimit: wasLimit(loadgenCpuShareMax),
    refused,
    duplicatesHidden: counted('duplicates'),
    tampered: counted('tampered'),
    reconnects: counted('sessions') - plan.peers,
  }
}

/** What a broker has done, by its metrics. */
export interface ShardCounts {
  /** The number of committed and acked envelopes. */
  readonly accepted: number
  readonly pushed: number
  /** The number of deliveries leased on insert. */
  readonly leasedOnInsert: number
  /** The number of deliveries claimed from the queue. */
  readonly claimed: number
  /** The number of deliveries that another broker leased on insert. */
  readonly collected: number
}

/** The ways in which deliveries reached their sessions. */
export type DeliveryPaths = Pick<ShardCounts, 'leasedOnInsert' | 'claimed' | 'collected'>

const METRICS: Readonly<Record<keyof ShardCounts, string>> = {
  accepted: 'sealpost_envelopes_accepted_total',
  pushed: 'sealpost_deliveries_pushed_total',
  leasedOnInsert: 'sealpost_deliveries_leased_on_insert_total',
  claimed: 'sealpost_claim_deliveries_sum',
  collected: 'sealpost_deliveries_collected_total',
}
const SCRAPE_WITHIN_MS = 5_000

/** Returns each broker's counts; null without access to its metrics. */
export function countsOf(shards: readonly Shard[]): Promise<(ShardCounts | null)[]> {
  return Promise.all(
    shards.map(async ({ adminUrl }) => {
      const metrics = await scrapeMetrics(adminUrl)
      return metrics === null ? null : countsIn(metrics)
    }),
  )
}

/** Reads a broker's metrics; null if it does not respond, which the verdict reveals. */
export async function scrapeMetrics(adminUrl: string | null): Promise<string | null> {
  if (adminUrl === null) return null
  return fetch(`${adminUrl}/metrics`, { signal: AbortSignal.timeout(SCRAPE_WITHIN_MS) })
    .then((response) => response.text())
    .catch(() => null)
}

/** Returns the counts in metrics. @throws OperatingError `metric_missing` */
export const countsIn = (metrics: string): ShardCounts => eachCount((name) => valueIn(metrics, METRICS[name]))

export const since = (first: ShardCounts | null | undefined, last: ShardCounts | null | undefined) =>
  first && last ? eachCount((name) => last[name] - first[name]) : null

/** Returns the sum of all brokers; null if one is unknown. */
export function deliveriesOf(shards: readonly (ShardCounts | null)[]): DeliveryPaths | null {
  const known = shards.filter((counts) => counts !== null)
  if (known.length < shards.length) return null
  const { leasedOnInsert, claimed, collected } = eachCount((name) => sum(known.map((counts) => counts[name])))
  return { leasedOnInsert, claimed, collected }
}

function eachCount(countOf: (name: keyof ShardCounts) => number): ShardCounts {
  const names = Object.keys(METRICS) as (keyof ShardCounts)[]
  return Object.fromEntries(names.map((name) => [name, countOf(name)])) as Record<keyof ShardCounts, number>
}

function valueIn(metrics: string, name: string): number {
  const [, value] = new RegExp(`^${name} (\\S+)$`, 'm').exec(metrics) ?? []
  if (value === undefined) throw new OperatingError('metric_missing', `The broker's /metrics has no ${name}.`)
  return Number(value)
}
