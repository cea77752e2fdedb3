/** Small frames both ways all the time, as of a transcription, while others come and ask for the broker's health. */
import type { Teardown } from '../../lib/teardown.ts'
import { Crowds } from '../crowds.ts'
import { Latencies } from '../histogram.ts'
import type { Plan } from '../plan.ts'
import { profileWords } from '../profile.ts'
import { isClean, type LoadResult, resultOf } from '../result.ts'
import { newMeshes, runOnce } from '../run.ts'
import type { Mesh } from '../seed.ts'
import { ALONE } from '../spread.ts'
import { count, figure } from '../text.ts'
import { generatorCheck } from './effort.ts'
import { type Findings, type Scenario, type ScenarioSetup, sizeOf } from './scenario.ts'

const SHARES = [1 / 3, 2 / 3, 1]
const EVERY_MS = 60
const FRAME_BYTES = 100
const P99_MS_MAX = 100
const HEALTH_P99_MS_MAX = 200
const JOINS_A_SECOND = 5

export const stream: Scenario = {
  name: 'stream',
  summary: '100, 200, 300 peers, a frame every 60 ms from each, beside joins and HTTP health',
  bar: `p99 ≤ ${P99_MS_MAX} ms, HTTP p99 ≤ ${HEALTH_P99_MS_MAX} ms`,
  reported: 'p99 67–86 ms at 1,500–2,700 frames/s',
  run,
}

interface Round {
  readonly result: LoadResult
  readonly health: Latencies
  readonly joins: Latencies
  readonly failed: number
}

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { peers, seconds } = sizeOf(setup, { peers: 300, seconds: 20 }, { peers: 90, seconds: 3 })
  const sizes = [...new Set(SHARES.map((share) => Math.max(2, Math.round(peers * share))))]
  const rounds: Round[] = []
  for (const each of setup.options.isQuick ? sizes.slice(-1) : sizes)
    rounds.push(await oneRound(setup, { peers: each, seconds }, teardown))
  return findingsOf(rounds)
}

async function oneRound(
  setup: ScenarioSetup,
  { peers, seconds }: { peers: number; seconds: number },
  teardown: Teardown,
): Promise<Round> {
  const { target, options, display } = setup
  display.step(`${peers} peers, a frame every ${EVERY_MS} ms from each`)
  const rate = Math.round((peers * 1000) / EVERY_MS)
  const base = { payloadBytes: FRAME_BYTES, seed: options.seed, isOneWay: false, spread: ALONE }
  const plan: Plan = { ...base, peers, total: rate * seconds, rate }
  const meshes = await newMeshes({ plan, target, options }, teardown)
  const joining = { ...base, peers: Math.max(2, JOINS_A_SECOND * seconds), total: 0, rate: null }
  const [crowd] = (await newMeshes({ plan: joining, target, options }, teardown)) as [Mesh]
  const beside = new Beside(setup, crowd, teardown)
  const began = { onStart: () => beside.begin(seconds) }
  const outcome = await runOnce({ plan, meshes, target, options, display, ...began }, teardown)
  return { result: resultOf(outcome, target, options), ...(await beside.end()) }
}

/** What goes on beside the frames. */
class Beside {
  readonly #setup: ScenarioSetup
  readonly #crowd: Mesh
  readonly #teardown: Teardown
  readonly #health = new Latencies()
  readonly #joins = new Latencies()
  #failed = 0
  #work: Promise<unknown> = Promise.resolve()
  #isOver = false

  constructor(setup: ScenarioSetup, crowd: Mesh, teardown: Teardown) {
    this.#setup = setup
    this.#crowd = crowd
    this.#teardown = teardown
  }

  begin(seconds: number): void {
    const untilMs = performance.now() + seconds * 1000
    const isOver = () => this.#isOver || performance.now() > untilMs
    this.#work = Promise.all([this.#join(isOver), this.#ask(isOver)])
    this.#work.catch(() => undefined) // told by `end`
  }

  async end() {
    this.#isOver = true
    await this.#work
    return { health: this.#health, joins: this.#joins, failed: this.#failed }
  }

  async #join(isOver: () => boolean): Promise<void> {
    const { target, options } = this.#setup
    const { failed } = target
    const opening = { mesh: this.#crowd, place: target.shards[0]!, programs: 1, words: profileWords(options), failed }
    const crowds = await Crowds.open(opening, this.#teardown)
    for (let there = 1; there <= this.#crowd.secrets.length && !isOver(); there++) {
      const { connectMs, failed: missing } = await crowds.grow(there)
      if (missing === 0) this.#joins.note(connectMs.at(100))
      this.#failed += missing
      await Bun.sleep(1000 / JOINS_A_SECOND)
    }
    await crowds.leave()
  }

  async #ask(isOver: () => boolean): Promise<void> {
    const { origin } = new URL(this.#setup.target.shards[0]!.url.replace(/^ws/, 'http'))
    while (!isOver()) {
      const askedAtMs = performance.now()
      const isThere = await fetch(`${origin}/version`).then(
        ({ ok }) => ok,
        () => false,
      )
      this.#health.note(performance.now() - askedAtMs)
      if (!isThere) this.#failed += 1
      await Bun.sleep(100)
    }
  }
}

function findingsOf(rounds: readonly Round[]): Findings {
  const last = rounds.at(-1)!
  const worst = Math.max(...rounds.map(({ result }) => result.e2eMs.p99))
  const health = Math.max(...rounds.map((round) => round.health.at(99)))
  const share = Math.max(...rounds.map(({ result }) => result.loadgenCpuShareMax))
  const failed = rounds.reduce((sum, round) => sum + round.failed, 0)
  const rows = rounds.map(({ result, health: asked, joins }) => {
    const { peers, rate, delivered, total, e2eMs } = result
    const times = [e2eMs.p50, e2eMs.p99, asked.at(99), joins.at(95)].map(figure)
    return [count(peers), count(rate!), `${count(delivered)} of ${count(total)}`, ...times]
  })
  return {
    headline: `${count(last.result.peers)} peers, ${count(last.result.rate!)} frames a second: p99 ${figure(worst)} ms`,
    shown: `p99 ${figure(worst)} ms, HTTP p99 ${figure(health)} ms`,
    sheets: [{ head: ['peers', 'frames/s', 'delivered', 'p50', 'p99', 'health p99', 'join p95 ms'], rows }],
    facts: [
      ['shape', `${FRAME_BYTES} bytes a frame, ${JOINS_A_SECOND} joins a second, health by HTTP ten times a second`],
    ],
    checks: [
      {
        about: 'mail',
        isMet: rounds.every(({ result }) => isClean(result)),
        sentence: 'Every frame arrived once, in order.',
      },
      {
        about: 'cost',
        isMet: worst < P99_MS_MAX,
        sentence: `p99 of a frame is under ${P99_MS_MAX} ms (${figure(worst)}).`,
      },
      {
        about: 'cost',
        isMet: health < HEALTH_P99_MS_MAX,
        sentence: `p99 of health is under ${HEALTH_P99_MS_MAX} ms (${figure(health)}).`,
      },
      {
        about: 'mail',
        isMet: failed === 0,
        sentence: `Everybody could join, and health was always answered (${count(failed)} not).`,
      },
      generatorCheck(share),
    ],
    graphs: [
      {
        title: 'Latency of frames',
        x: 'peers',
        y: 'ms',
        lines: (['p50', 'p99'] as const).map((name) => ({
          name,
          points: rounds.map(({ result }) => [result.peers, result.e2eMs[name]] as const),
        })),
      },
    ],
    figures: {
      framesPerSecond: last.result.rate!,
      e2eMsP99: worst,
      healthMsP99: health,
      joinMsP95: last.joins.at(95),
      failed,
      generatorShare: share,
    },
  }
}
