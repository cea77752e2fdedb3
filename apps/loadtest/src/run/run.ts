/** One run: a mesh of peers against one target, from the first connection to the verdict. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { generateMesh, type MeshMembers } from '@sealpost/harness/members/mesh'
import { peakRssMb } from '@sealpost/harness/programs/process-facts'
import { ResourceMonitor, type ResourceUsage } from '@sealpost/harness/programs/resource-usage'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { clockMs } from '@sealpost/sdk'
import type { LoadOptions } from '../command/arguments.ts'
import { profileWords } from '../command/profile.ts'
import type { Display } from '../command/progress.ts'
import type { DatabaseCounters } from '../environment/database.ts'
import type { Environment, RunTarget } from '../environment/environment.ts'
import { countsOf, type ShardCounts, since } from '../environment/shard-counts.ts'
import { Fleet, type FleetSetup } from '../generators/fleet.ts'
import type { Collected } from '../generators/orders.ts'
import type { Plan } from '../generators/plan.ts'
import { cellOf, firstOf } from '../generators/spread.ts'
import { judge, type Verdict } from './verdict.ts'

export interface LoadOutcome {
  readonly plan: Plan
  readonly startMs: number
  readonly verdict: Verdict
  readonly usage: ResourceUsage
  readonly generators: readonly Collected[]
  /** Before the run; null when it ran cold. */
  readonly exchange: { readonly messages: number; readonly ms: number } | null
  /** During the run; null for the relay. */
  readonly database: DatabaseCounters | null
  /** Deliveries that were still in the broker at the end. */
  readonly leftInQueue: number | null
  /** Of each broker during the run; null: its metrics can't be read. */
  readonly shardCounts: readonly (ShardCounts | null)[]
}

export interface RunSetup {
  readonly plan: Plan
  /** As many as the plan says. */
  readonly meshes: readonly MeshMembers[]
  readonly target: RunTarget
  readonly options: LoadOptions
  readonly display: Display
  /** The length of a span to be judged on its own. */
  readonly spanMs?: number
  /** Deliveries of the first mesh that stay where they are: others wait for them. */
  readonly resting?: number
  readonly onStart?: () => void
}

/** The meshes of a plan, each in the database of its cell, and out of it at the end if that outlives us. */
export async function newMeshes(
  { plan, target }: { plan: Plan; target: Environment },
  teardown: Teardown,
): Promise<MeshMembers[]> {
  const outlivesUs = !target.isDatabaseOurs
  const meshes: MeshMembers[] = []
  for (let i = 0; i < plan.spread.meshes; i++) {
    const mesh = await generateMesh(firstOf(plan, i + 1) - firstOf(plan, i))
    if (outlivesUs) teardown.add({ end: () => target.databases.forget(mesh.meshId) })
    await target.databases.seed(mesh, cellOf(plan.spread, i))
    meshes.push(mesh)
  }
  return meshes
}

/** A connection tells its statistics once a second at most. */
const STATISTICS_MS = 1_100
/** Settlements follow the last delivery within a commit or two. */
const SETTLE_WITHIN_MS = 5_000

export async function runOnce(setup: RunSetup, teardown: Teardown): Promise<LoadOutcome> {
  const { target } = setup
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-load-'))
  const removeFolder = teardown.add({ end: () => rm(folder, { recursive: true, force: true }) })
  const fleet = await Fleet.open(fleetSetup(setup, join(folder, 'run')))
  const stopFleet = teardown.add({ end: () => fleet.stop(), kill: () => fleet.kill() })
  try {
    return await Promise.race([measure(fleet, setup), target.failed])
  } finally {
    await stopFleet()
    await removeFolder()
  }
}

async function measure(fleet: Fleet, setup: RunSetup): Promise<LoadOutcome> {
  const { plan, meshes, target, options, display, spanMs = null } = setup
  display.step(`connecting ${plan.peers} peers`)
  await fleet.connect()
  const exchange = options.isCold ? null : await exchangeKeys(fleet, display)
  const before = await counters(fleet, target)
  await untilSettled(setup, SETTLE_WITHIN_MS) // so that the counts of the run hold no delivery from before it
  const countsBefore = await countsOf(target.shards)
  const watch = new ResourceMonitor({ brokers: target.shards, postmasterPids: target.postmasterPids })
  display.begin(plan.total)
  setup.onStart?.()
  const { startMs, isComplete } = await fleet.run((progress) => display.update(progress))
  display.end()
  if (!isComplete) display.step(`nothing more came for ${options.drainMs} ms, ending the run`)
  const leftInQueue = await untilSettled(setup, isComplete ? SETTLE_WITHIN_MS : 0)
  const usage = watch.stop()
  const counts = await countsOf(target.shards)
  const after = isComplete ? await counters(fleet, target) : null // a broker that hangs would not answer the tap
  const collected = await fleet.collect()
  const called = collected.reduce((sum, generator) => sum + generator.called, 0)
  const run = { plan, startMs, called, records: fleet.records, spanMs }
  const meshIds = meshes.map(({ meshId }) => meshId)
  const verdict = await judge(run, (ids) => target.databases?.waiting(meshIds, ids) ?? Promise.resolve(new Set()))
  return {
    plan,
    startMs,
    verdict,
    usage: withKernelPeak(usage, setup),
    generators: collected,
    exchange,
    database: before && after && difference(after, before),
    leftInQueue,
    shardCounts: counts.map((last, i) => since(countsBefore[i], last)),
  }
}

export function fleetSetup({ plan, meshes, target, options }: Omit<RunSetup, 'display'>, records: string): FleetSetup {
  const { form, window, generators, agents, drainMs } = options
  return {
    ...{ plan, records, form, window, generators, agents, drainMs },
    peers: { first: 0, end: plan.peers },
    places: target.shards.map(({ url, brokerKey }) => ({ url, brokerKey })),
    meshIds: meshes.map(({ meshId }) => meshId),
    peerKeys: meshes.flatMap(({ peerKeys }) => peerKeys),
    secrets: meshes.flatMap(({ secrets }) => secrets),
    words: profileWords(options),
  }
}

async function exchangeKeys(fleet: Fleet, display: Display) {
  display.step('exchanging keys')
  const startMs = clockMs()
  const messages = await fleet.exchange()
  return { messages, ms: clockMs() - startMs }
}

async function counters(fleet: Fleet, { databases }: RunTarget): Promise<DatabaseCounters | null> {
  if (!databases) return null
  await Bun.sleep(STATISTICS_MS)
  await fleet.tap()
  return databases.counters()
}

function difference(after: DatabaseCounters, before: DatabaseCounters): DatabaseCounters {
  return { transactions: after.transactions - before.transactions, walBytes: after.walBytes - before.walBytes }
}

/** @returns what is left, beside what rests, when it does not come to an end */
async function untilSettled(setup: RunSetup, withinMs: number): Promise<number | null> {
  const { databases } = setup.target
  const { meshes, resting = 0 } = setup
  if (!databases) return null
  const meshIds = meshes.map(({ meshId }) => meshId)
  const giveUpMs = clockMs() + withinMs
  while (!(await databases.holdAtMost(meshIds, resting))) {
    if (clockMs() > giveUpMs) return (await databases.countQueued(meshIds)) - resting
    await Bun.sleep(50)
  }
  return 0
}

/** The kernel remembers the very peak; of a broker that was there before, it would be someone else's. */
function withKernelPeak(usage: ResourceUsage, { target, options }: RunSetup): ResourceUsage {
  if (options.brokerUrls.length > 0 || options.isSweep) return usage
  const peakOf = (i: number) => {
    const pid = target.shards[i]?.pid ?? null
    return pid === null ? null : peakRssMb(pid)
  }
  const shards = usage.brokers.map((shard, i) => ({ ...shard, rssMbPeak: peakOf(i) ?? shard.rssMbPeak }))
  return { ...usage, brokers: shards }
}
