/**
 * Runs an open loop for minutes or hours, and samples storage and broker, optionally with a held snapshot and a
 * backlog.
 */

import { join } from 'node:path'
import { generateMesh, type MeshMembers } from '@sealpost/harness/members/mesh'
import { processFacts } from '@sealpost/harness/programs/machine'
import { holdSnapshot } from '@sealpost/harness/programs/postgres'
import { type Teardown, temporaryFolder } from '@sealpost/harness/programs/teardown'
import type { Percentiles } from '@sealpost/harness/report/latencies'
import { count, figure } from '@sealpost/harness/report/text'
import { clockMs } from '@sealpost/sdk'
import type { MeshId } from '@sealpost/std'
import type { RelationFacts } from '../environment/database.ts'
import type { Environment } from '../environment/environment.ts'
import { Fleet } from '../generators/fleet.ts'
import { correspondents, type Plan, planOf, type Share } from '../generators/plan.ts'
import { loadChapter } from '../report/report.ts'
import { isClean, type LoadResult, resultOf } from '../run/result.ts'
import { fleetSetup, newMeshes, type RunContext, runOnce, runPlan } from '../run/run.ts'
import { judge, type SpanLatencies } from '../run/verdict.ts'
import {
  type Findings,
  type Graph,
  generatorCheck,
  mailCheck,
  memoryGraph,
  percentilesGraph,
  type Scenario,
  sizeOf,
} from '../scenarios/scenario.ts'
import {
  type Drained,
  type Hold,
  rowsOf,
  type SoakFigures,
  type SoakSample,
  soakSheet,
  soakVerdicts,
  spanSecondsOf,
  tenthsOf,
} from './soak-report.ts'

export interface SoakOptions {
  readonly seconds: number
  /** How long another session holds a snapshot in the middle of the run. */
  readonly holdSeconds: number | null
  /** The number of messages for absent peers. */
  readonly backlog: number
}

interface SoakSetup {
  readonly soak: SoakOptions
  readonly plan: Plan
}

export interface SoakOutcome {
  readonly result: LoadResult
  readonly spans: readonly SpanLatencies[]
  readonly figures: SoakFigures
}

/** The maximum length of the run before the soak, of which the second half counts. */
const ALONE_SECONDS = 60

export async function runSoak(context: RunContext, setup: SoakSetup, teardown: Teardown): Promise<SoakOutcome> {
  const { soak, plan } = setup
  const { target, options } = context
  const uncounted = await uncountedOf(target)
  const aloneMs = soak.backlog > 0 ? await runAlone(context, setup, teardown) : null
  const meshes = await newMeshes(plan, target, teardown)
  const backlog = aloneMs && (await Backlog.store(context, soak.backlog, meshes[0]!.meshId, teardown))
  const monitor = new StorageMonitor(target, uncounted)
  const spanMs = spanSecondsOf(soak.seconds) * 1000
  const hold = holdOf(soak)
  let holding: Promise<void> | undefined
  const onStart = () => {
    holding = hold ? keepSnapshot(target.databaseUrl, hold) : undefined
    holding?.catch(() => undefined) // `run` reports the failure below
  }
  const outcome = await runOnce({ ...context, plan, meshes, spanMs, resting: soak.backlog, onStart }, teardown)
  const samples = monitor.stop()
  await holding
  const { spans } = outcome.verdict
  const rows = rowsOf({ ...soak, startMs: outcome.startMs, samples, spans })
  const drained = await backlog?.drain()
  const figures: SoakFigures = {
    seconds: soak.seconds,
    spanSeconds: spanMs / 1000,
    rows,
    verdicts: soakVerdicts(rows, hold),
    hold,
    backlog: drained && aloneMs ? { ...drained, aloneMs, p99Ratio: outcome.verdict.e2eMs.p99 / aloneMs.p99 } : null,
    startMs: outcome.startMs,
    series: samples,
  }
  return { result: resultOf(outcome, target, options), spans, figures }
}

/** Returns whether all requirements are met and the backlog is intact. */
export function isSteady({ verdicts, backlog }: SoakFigures): boolean {
  const isDrained =
    backlog === null || (backlog.delivered === backlog.messages && backlog.misdelivered + backlog.outOfOrder === 0)
  return isDrained && verdicts.every(({ isMet }) => isMet)
}

/** Runs the same load without a backlog, after a warm-up of the same length. */
async function runAlone(context: RunContext, setup: SoakSetup, teardown: Teardown): Promise<Percentiles> {
  const seconds = Math.min(ALONE_SECONDS, setup.soak.seconds)
  const plan = { ...setup.plan, total: setup.plan.rate! * seconds }
  const { result, spans } = await runPlan(context, { plan, spanMs: seconds * 500 }, teardown)
  return (spans[1] ?? result).e2eMs
}

function holdOf({ seconds, holdSeconds }: SoakOptions): Hold | null {
  if (holdSeconds === null) return null
  const fromSeconds = (seconds - holdSeconds) / 2
  return { fromSeconds, toSeconds: fromSeconds + holdSeconds }
}

async function keepSnapshot(databaseUrl: string, { fromSeconds, toSeconds }: Hold): Promise<void> {
  await Bun.sleep(fromSeconds * 1000)
  const held = await holdSnapshot(databaseUrl)
  await Bun.sleep((toSeconds - fromSeconds) * 1000)
  await held.release()
}

const SAMPLE_MS = 1000

/** Samples storage and broker once a second. */
class StorageMonitor {
  readonly #samples: SoakSample[] = []
  readonly #target: Environment
  readonly #timer: ReturnType<typeof setInterval>
  readonly #uncounted: number
  #isLooking = false

  /** @param uncounted - deliveries that the statistics miss */
  constructor(target: Environment, uncounted: number) {
    this.#target = target
    this.#uncounted = uncounted
    this.#timer = setInterval(() => void this.#look(), SAMPLE_MS)
  }

  stop(): SoakSample[] {
    clearInterval(this.#timer)
    return this.#samples
  }

  async #look(): Promise<void> {
    if (this.#isLooking) return // a slow database receives fewer queries
    this.#isLooking = true
    try {
      const { databases, shards } = this.#target
      const relations = await databases.first.relations()
      const memories = shards.flatMap(({ pid }) => (pid === null ? [] : (processFacts(pid)?.rssMb ?? [])))
      const brokerRssMb = memories.length === 0 ? null : Math.max(...memories)
      const queued = queueRowsOf(relations) + this.#uncounted
      this.#samples.push({ atMs: clockMs(), relations, queued, brokerRssMb })
    } catch {
      // A sample is then missing. The run itself fails if the database is unavailable.
    } finally {
      this.#isLooking = false
    }
  }
}

/** Returns how many deliveries the statistics miss. The queue must not change during the call. */
async function uncountedOf({ databases }: Environment): Promise<number> {
  return (await databases.countQueued(null)) - queueRowsOf(await databases.first.relations())
}

const queueRowsOf = (relations: readonly RelationFacts[]): number =>
  relations.find(({ name }) => name === 'message_queue')?.rows ?? 0

/** Messages from members that then leave, to recipients that connect at the end. */
class Backlog {
  readonly #context: RunContext
  readonly #plan: Plan
  readonly #mesh: MeshMembers
  readonly #folder: string
  readonly #teardown: Teardown
  readonly #records: string[] = []
  #called = 0
  #storedPerSecond = 0

  private constructor(context: RunContext, plan: Plan, mesh: MeshMembers, folder: string, teardown: Teardown) {
    this.#context = context
    this.#plan = plan
    this.#mesh = mesh
    this.#folder = folder
    this.#teardown = teardown
  }

  /** Stores a backlog, with as many senders and absent recipients as the run has peers. */
  static async store(context: RunContext, messages: number, meshId: MeshId, teardown: Teardown): Promise<Backlog> {
    const { options, display, target } = context
    const peers = options.peers * 2
    const mesh = await generateMesh(peers, meshId)
    const folder = await temporaryFolder('load', teardown)
    const plan = planOf({ peers, total: messages, isOneWay: true })
    const backlog = new Backlog(context, plan, mesh, folder, teardown)
    display.step(`storing ${messages} messages for offline peers`)
    await target.databases.first.enrol(mesh)
    const startMs = clockMs()
    backlog.#called = await backlog.#runShare('senders', { first: 0, end: options.peers })
    backlog.#storedPerSecond = (messages * 1000) / (clockMs() - startMs)
    return backlog
  }

  /** Connects the absent peers, and waits until they have everything. */
  async drain(): Promise<Drained> {
    const { target, options, display } = this.#context
    const { peers } = options
    display.step('connecting the offline peers')
    await this.#runShare('recipients', { first: peers, end: peers * 2 })
    const called = this.#called
    const run = {
      plan: this.#plan,
      startMs: 0,
      called,
      records: this.#records,
      spanMs: null,
      pairs: correspondents(this.#plan).reduce((sum, { size }) => sum + size, 0),
    }
    const verdict = await judge(run, (ids) => target.databases.waiting([this.#mesh.meshId], ids))
    const { delivered, lost, timedOut, duplicates, misdelivered, outOfOrder, arrivingMs, drain } = verdict
    return {
      ...{ delivered, lost, timedOut, duplicates, misdelivered, outOfOrder },
      messages: this.#plan.total,
      storedPerSecond: this.#storedPerSecond,
      drainedPerSecond: arrivingMs === 0 ? 0 : (delivered * 1000) / arrivingMs,
      tenths: drain && tenthsOf(drain),
    }
  }

  /** Runs a share of the peers. @returns the number of calls to `send` */
  async #runShare(name: string, peers: Share): Promise<number> {
    const { target, display, options } = this.#context
    const first = { ...target, shards: target.shards.slice(0, 1) }
    const setup = fleetSetup(
      { plan: this.#plan, meshes: [this.#mesh], target: first, options },
      join(this.#folder, name),
    )
    const fleet = new Fleet({ ...setup, peers })
    const stop = this.#teardown.addProgram(fleet)
    const work = async () => {
      await fleet.connect()
      display.begin(this.#plan.total)
      await fleet.run((progress) => display.update(progress))
      display.end()
      const collected = await fleet.collect()
      this.#records.push(...fleet.records)
      return collected.reduce((sum, { called }) => sum + called, 0)
    }
    return Promise.race([work(), target.failed]).finally(stop)
  }
}

export const soak: Scenario = {
  name: 'soak',
  summary: '100 peers send 2,000 messages per second for 10 minutes',
  bar: 'flat p99, memory and table size',
  reported: null,
  run: runScenario,
}

const RATE = 2_000
const QUICK_RATE = 500

async function runScenario(context: RunContext, teardown: Teardown): Promise<Findings> {
  const { options } = context
  const { peers, seconds } = sizeOf(context, { peers: 100, seconds: 600 }, { peers: 50, seconds: 25 })
  const rate = options.rate ?? (options.isQuick ? QUICK_RATE : RATE)
  const plan = planOf({ peers, total: rate * seconds, rate })
  const setup = { soak: { seconds, holdSeconds: null, backlog: 0 }, plan }
  const { result, spans, figures } = await runSoak(context, setup, teardown)
  const chapter = loadChapter(result, spans)
  const [second, last] = [figures.rows[1]!, figures.rows.at(-1)!]
  const memory = [second, last].map(({ brokerRssMb }) => figure(brokerRssMb ?? 0)).join(' → ')
  const p99 = `p99 ${figure(second.p99)} → ${figure(last.p99)} ms`
  return {
    headline: `${count(rate)} per second for ${count(seconds)} s: ${p99}`,
    shown: `${p99}, ${memory} MB`,
    sheets: [...chapter.sheets.slice(0, 1), soakSheet(figures)],
    facts: chapter.facts,
    checks: [
      mailCheck(isClean(result), 'Every message arrived once and in order.'),
      ...figures.verdicts.map((verdict) => ({
        ...{ about: 'cost' as const, ...verdict, sentence: `${verdict.sentence}.` },
      })),
      generatorCheck(result.loadgenCpuShareMax),
    ],
    graphs: graphsOf(figures),
    figures: {
      ...{ messagesPerSecond: rate, delivered: result.delivered, lost: result.lost },
      ...{ e2eMsP50: result.e2eMs.p50, e2eMsP99: result.e2eMs.p99, e2eMsP99Second: second.p99, e2eMsP99Last: last.p99 },
      ...{ rssMbSecond: second.brokerRssMb ?? 0, rssMbLast: last.brokerRssMb ?? 0 },
      generatorShare: result.loadgenCpuShareMax,
    },
  }
}

function graphsOf({ rows, series, startMs }: SoakFigures): Graph[] {
  const memory = series.flatMap(({ atMs, brokerRssMb }) =>
    brokerRssMb === null ? [] : [[(atMs - startMs) / 1000, brokerRssMb] as const],
  )
  const latencies = rows.map((row) => [row.fromSeconds, row] as const)
  return [percentilesGraph('Latency by time', 'seconds', latencies, ['p50', 'p99']), memoryGraph('seconds', memory)]
}
