/**
 * This scenario sends small frames in both directions all the time, as in a live transcription, while peers join and
 * query the broker's health.
 */

import type { MeshMembers } from '@sealpost/harness/members/mesh'
import { atRate } from '@sealpost/harness/programs/pace'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { Latencies } from '@sealpost/harness/report/latencies'
import { count, figure, orDash, sum } from '@sealpost/harness/report/text'
import { clockMs } from '@sealpost/sdk'
import { IdlePeers } from '../../generators/idle-peers.ts'
import { planOf } from '../../generators/plan.ts'
import { isClean, type LoadResult } from '../../run/result.ts'
import { newMesh, type RunContext, runPlan } from '../../run/run.ts'
import {
  type Check,
  type Findings,
  generatorCheck,
  isJudged,
  latencyCheck,
  mailCheck,
  percentileCheck,
  percentilesGraph,
  type Scenario,
  sizeOf,
} from '../scenario.ts'

const SHARES = [1 / 3, 8 / 15, 1]
const EVERY_MS = 60
const FRAME_BYTES = 100
const P99_MS_MAX = 100
/**
 * The highest published rate, up to which the requirement applies. At 5,000 frames per second on two cores, the client
 * had a p99 of 97 ms even with a relay.
 */
const JUDGED_RATE_MAX = 2_700
const HEALTH_P99_MS_MAX = 200
const JOINS_A_SECOND = 5
/** The rate of health requests, enough in 20 seconds for a p99. */
const HEALTH_A_SECOND = 50

export const stream: Scenario = {
  name: 'stream',
  summary: '100, 160 and 300 peers send a frame every 60 ms each, while others join and request health over HTTP',
  bar: `p99 ≤ ${P99_MS_MAX} ms up to ${count(JUDGED_RATE_MAX)} frames/s, HTTP p99 ≤ ${HEALTH_P99_MS_MAX} ms`,
  reported: 'p99 67–86 ms at 1,500–2,700 frames/s',
  run,
}

interface StreamRound {
  readonly result: LoadResult
  readonly health: Latencies
  readonly joins: Latencies
  readonly failed: number
}

async function run(context: RunContext, teardown: Teardown): Promise<Findings> {
  const { peers, seconds } = sizeOf(context, { peers: 300, seconds: 20 }, { peers: 90, seconds: 3 })
  const sizes = [...new Set(SHARES.map((share) => Math.max(2, Math.round(peers * share))))]
  const rounds: StreamRound[] = []
  for (const each of context.options.isQuick ? sizes.slice(-1) : sizes)
    rounds.push(await oneRound(context, { peers: each, seconds }, teardown))
  return findingsOf(rounds)
}

async function oneRound(
  context: RunContext,
  { peers, seconds }: { peers: number; seconds: number },
  teardown: Teardown,
): Promise<StreamRound> {
  const { target, display } = context
  display.step(`${peers} peers, a frame every ${EVERY_MS} ms from each`)
  const rate = Math.round((peers * 1000) / EVERY_MS)
  const plan = planOf({ peers, total: rate * seconds, rate, payloadBytes: FRAME_BYTES })
  const joining = await newMesh(planOf({ peers: Math.max(2, JOINS_A_SECOND * seconds) }), target, teardown)
  const visitors = await Visitors.open(context, joining, teardown)
  const { result } = await runPlan(context, { plan, onStart: () => visitors.begin(seconds) }, teardown)
  return { result, ...(await visitors.end()) }
}

/** Runs peers that join, and requests for health. */
class Visitors {
  readonly #context: RunContext
  readonly #idle: IdlePeers
  readonly #size: number
  readonly #health = new Latencies()
  readonly #joins = new Latencies()
  #failed = 0
  #work: Promise<unknown> = Promise.resolve()
  #isOver = false

  /** Starts the program before any frames are sent, because startup occupies a core for half a second. */
  static async open(context: RunContext, mesh: MeshMembers, teardown: Teardown): Promise<Visitors> {
    const { failed, shards } = context.target
    const { runtimeArgs } = context.options
    const setup = { mesh, broker: shards[0]!, programs: 1, runtimeArgs, failed }
    return new Visitors(context, await IdlePeers.open(setup, teardown), mesh.secrets.length)
  }

  private constructor(context: RunContext, idle: IdlePeers, size: number) {
    this.#context = context
    this.#idle = idle
    this.#size = size
  }

  begin(seconds: number): void {
    const untilMs = performance.now() + seconds * 1000
    const isOver = () => this.#isOver || performance.now() > untilMs
    const asking = atRate({ perSecond: HEALTH_A_SECOND, until: seconds }, (_, dueAtMs) => this.#ask(dueAtMs))
    this.#work = Promise.all([this.#join(isOver), asking])
    this.#work.catch(() => undefined) // `end` reports the error
  }

  async end() {
    this.#isOver = true
    await this.#work
    return { health: this.#health, joins: this.#joins, failed: this.#failed }
  }

  async #join(isOver: () => boolean): Promise<void> {
    for (let joined = 1; joined <= this.#size && !isOver(); joined++) {
      const { connectMs, failed } = await this.#idle.grow(joined)
      if (failed === 0) this.#joins.note(connectMs.at(100))
      this.#failed += failed
      await Bun.sleep(1000 / JOINS_A_SECOND)
    }
    await this.#idle.leave()
  }

  async #ask(dueAtMs: number): Promise<void> {
    const { origin } = new URL(this.#context.target.shards[0]!.url.replace(/^ws/, 'http'))
    const isHealthy = await fetch(`${origin}/version`).then(
      ({ ok }) => ok,
      () => false,
    )
    this.#health.note(clockMs() - dueAtMs)
    if (!isHealthy) this.#failed += 1
  }
}

function roundChecks(round: StreamRound): Check[] {
  const { result, health } = round
  const at = `at ${count(result.rate!)} frames/s`
  const check = latencyCheck(health, { percent: 99, maxMs: HEALTH_P99_MS_MAX, of: `health requests ${at}` })
  if (!isWithinReports(round)) return [check]
  const frames = { percent: 99, samples: result.delivered, ms: result.e2eMs.p99, maxMs: P99_MS_MAX }
  return [percentileCheck({ ...frames, of: `frames ${at}` }), check]
}

const isWithinReports = ({ result }: StreamRound): boolean => result.rate! <= JUDGED_RATE_MAX

/** Returns the number of cores of all programs. */
function coresOf({ brokerCpuSeconds, postgresCpuSeconds, loadgenCpuSeconds, wallMs }: LoadResult): number | null {
  if (brokerCpuSeconds === null || postgresCpuSeconds === null) return null
  return (brokerCpuSeconds + postgresCpuSeconds + loadgenCpuSeconds) / (Math.max(1, wallMs) / 1000)
}

function rowOf({ result, health, joins }: StreamRound): string[] {
  const { peers, rate, delivered, total, e2eMs, callToPushMs } = result
  const times = [e2eMs.p50, e2eMs.p99, callToPushMs.p99, health.at(99), joins.at(95)].map(figure)
  return [count(peers), count(rate!), `${count(delivered)} of ${count(total)}`, ...times, orDash(coresOf(result))]
}

function findingsOf(rounds: readonly StreamRound[]): Findings {
  const last = rounds.at(-1)!
  const results = rounds.map(({ result }) => result)
  const judged = rounds.filter(isWithinReports)
  const shownRounds = judged.length > 0 ? judged : rounds
  const worst = Math.max(...shownRounds.map(({ result }) => result.e2eMs.p99))
  const health = Math.max(...rounds.map((round) => round.health.at(99)))
  const share = Math.max(...results.map(({ loadgenCpuShareMax }) => loadgenCpuShareMax))
  const failed = sum(rounds.map((round) => round.failed))
  const checks = rounds.flatMap(roundChecks)
  const { peers, rate } = shownRounds.at(-1)!.result
  const shape = `${JOINS_A_SECOND} joins and ${HEALTH_A_SECOND} HTTP health requests per second`
  const limit = `for rates up to ${count(JUDGED_RATE_MAX)} frames/s, the maximum of a published report`
  return {
    headline: `${count(peers)} peers, ${count(rate!)} frames per second: p99 ${figure(worst)} ms`,
    shown: `p99 ${figure(worst)} ms, HTTP p99 ${figure(health)} ms`,
    isBarJudged: judged.length > 0 && checks.every(isJudged),
    sheets: [
      {
        head: ['peers', 'frames/s', 'delivered', 'p50', 'p99', 'call → push', 'health p99', 'join p95 ms', 'cores'],
        rows: rounds.map(rowOf),
      },
    ],
    facts: [
      ['shape', `${FRAME_BYTES} bytes a frame, ${shape}`],
      ['bar', `${limit}; higher rates are not judged`],
    ],
    checks: [
      mailCheck(results.every(isClean), 'Every frame arrived once and in order.'),
      ...checks,
      mailCheck(failed === 0, `Every join and every health request succeeded (${count(failed)} failed).`),
      generatorCheck(share),
    ],
    graphs: [
      percentilesGraph(
        'Latency of frames',
        'peers',
        results.map((result) => [result.peers, result.e2eMs]),
        ['p50', 'p99'],
      ),
    ],
    figures: {
      framesPerSecond: last.result.rate!,
      ...{ e2eMsP99: worst, healthMsP99: health, joinMsP95: last.joins.at(95), failed, generatorShare: share },
    },
  }
}
