/** Performs one run in one environment, from the first connection to the verdict. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { generateMesh, type MeshMembers } from '@sealpost/harness/members/mesh'
import { peakRssMb, ResourceMonitor, type ResourceUsage } from '@sealpost/harness/programs/machine'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { clockMs } from '@sealpost/sdk'
import type { Display } from '../command/progress.ts'
import type { DatabaseCounters } from '../environment/database.ts'
import type { Environment, EnvironmentOptions, RunTarget } from '../environment/environment.ts'
import { Fleet, type FleetSetup } from '../generators/fleet.ts'
import { cellOf, firstOf, type Plan, type Spread } from '../generators/plan.ts'
import { countsOf, type LoadOutcome, type LoadResult, resultOf, since } from './result.ts'
import { judge, type SpanLatencies } from './verdict.ts'

/** The options that runs and scenarios read. */
export interface WorkloadOptions
  extends Omit<EnvironmentOptions, 'cells' | 'shards' | 'tell' | 'isCounting'>,
    Pick<FleetSetup, 'form' | 'window' | 'isPacking' | 'isRatcheted' | 'generators' | 'drainMs'> {
  readonly peers: number
  readonly messages: number
  /** Messages per second of all peers; null for as fast as the window allows. */
  readonly rate: number | null
  readonly seconds: number
  readonly spread: Spread
  readonly isSweep: boolean
  readonly isCold: boolean
  /** The number of messages per sender to one group, instead of random peers. */
  readonly group: number | null
  /** Whether scenarios are short. */
  readonly isQuick: boolean
  readonly asked: Asked
}

/** The command line's values; null if missing. */
export interface Asked {
  readonly peers: number | null
  readonly messages: number | null
  readonly seconds: number | null
}

/** The environment, the command line and a progress display. */
export interface RunContext<Target extends RunTarget = Environment> {
  readonly target: Target
  readonly options: WorkloadOptions
  readonly display: Display
}

export interface RunSetup extends RunContext<RunTarget> {
  readonly plan: Plan
  /** The meshes of the plan. */
  readonly meshes: readonly MeshMembers[]
  /** The length of the verdict's spans. */
  readonly spanMs?: number
  /** The number of deliveries that stay in the first mesh's queue. */
  readonly resting?: number
  readonly onStart?: () => void
}

/** Creates a plan's meshes, which are deleted at the end if the database outlives the test. */
export async function newMeshes(plan: Plan, target: Environment, teardown: Teardown): Promise<MeshMembers[]> {
  const meshes: MeshMembers[] = []
  for (let i = 0; i < plan.spread.meshes; i++) {
    const mesh = await generateMesh(firstOf(plan, i + 1) - firstOf(plan, i))
    if (!target.isDatabaseOurs) teardown.add({ end: () => target.databases.forget(mesh.meshId) })
    await target.databases.cells[cellOf(plan.spread, i)]!.seed(mesh)
    meshes.push(mesh)
  }
  return meshes
}

/** Returns the only mesh of a single-mesh plan. */
export async function newMesh(plan: Plan, target: Environment, teardown: Teardown): Promise<MeshMembers> {
  const [mesh] = await newMeshes(plan, target, teardown)
  return mesh!
}

/** Runs a plan in its own meshes. */
export async function runPlan(
  { target, options, display }: RunContext,
  setup: Omit<RunSetup, 'meshes' | keyof RunContext>,
  teardown: Teardown,
): Promise<{ result: LoadResult; spans: readonly SpanLatencies[] }> {
  const meshes = await newMeshes(setup.plan, target, teardown)
  const outcome = await runOnce({ ...setup, meshes, target, options, display }, teardown)
  return { result: resultOf(outcome, target, options), spans: outcome.verdict.spans }
}

/** How long to wait for a connection's statistics. */
const STATISTICS_MS = 1_100
/** How long to wait for settles, which follow within a commit or two. */
const SETTLE_WITHIN_MS = 5_000

export async function runOnce(setup: RunSetup, teardown: Teardown): Promise<LoadOutcome> {
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-load-'))
  const removeFolder = teardown.add({ end: () => rm(folder, { recursive: true, force: true }) })
  const fleet = new Fleet(fleetSetup(setup, join(folder, 'run')))
  const stopFleet = teardown.addProgram(fleet)
  try {
    return await Promise.race([measure(fleet, setup), setup.target.failed])
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
  await untilSettled(setup, SETTLE_WITHIN_MS) // excludes earlier deliveries from the run
  const countsBefore = await countsOf(target.shards)
  const monitor = new ResourceMonitor({ brokers: target.shards, postmasterPids: target.postmasterPids })
  display.begin(plan.total)
  setup.onStart?.()
  const { startMs, isComplete } = await fleet.run((progress) => display.update(progress))
  display.end()
  if (!isComplete) display.step(`received nothing for ${options.drainMs} ms, ending the run`)
  const leftInQueue = await untilSettled(setup, isComplete ? SETTLE_WITHIN_MS : 0)
  const usage = monitor.stop()
  const counts = await countsOf(target.shards)
  const after = isComplete ? await counters(fleet, target) : null // a broker that hangs would not reply to the tap
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

export function fleetSetup(
  { plan, meshes, target, options }: Pick<RunSetup, 'plan' | 'meshes' | 'target' | 'options'>,
  records: string,
): FleetSetup {
  const { form, window, isPacking, isRatcheted, generators, drainMs, runtimeArgs } = options
  return {
    ...{ plan, records, form, window, isPacking, isRatcheted, generators, drainMs, runtimeArgs },
    peers: { first: 0, end: plan.peers },
    brokers: target.shards.map(({ url, brokerKey }) => ({ url, brokerKey })),
    meshIds: meshes.map(({ meshId }) => meshId),
    peerKeys: meshes.flatMap(({ peerKeys }) => peerKeys),
    secrets: meshes.flatMap(({ secrets }) => secrets),
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

/** Waits until everything is settled. @returns the deliveries left after `withinMs`, without resting ones */
async function untilSettled(
  { target: { databases }, meshes, resting = 0 }: RunSetup,
  withinMs: number,
): Promise<number | null> {
  if (!databases) return null
  const meshIds = meshes.map(({ meshId }) => meshId)
  const giveUpMs = clockMs() + withinMs
  while (!(await databases.holdAtMost(meshIds, resting))) {
    if (clockMs() > giveUpMs) return (await databases.countQueued(meshIds)) - resting
    await Bun.sleep(50)
  }
  return 0
}

/** Uses the kernel's exact peak of memory, if the test started the broker. */
function withKernelPeak(usage: ResourceUsage, { target, options }: RunSetup): ResourceUsage {
  if (options.brokerUrls.length > 0 || options.isSweep) return usage
  const peakOf = (i: number) => {
    const pid = target.shards[i]?.pid ?? null
    return pid === null ? null : peakRssMb(pid)
  }
  const brokers = usage.brokers.map((broker, i) => ({ ...broker, rssMbPeak: peakOf(i) ?? broker.rssMbPeak }))
  return { ...usage, brokers }
}
