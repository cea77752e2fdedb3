/** A search for the ceiling: more and more messages a second, until the latency or a fault says that it is reached, and then between. */
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, figure } from '@sealpost/harness/report/text'
import type { Plan } from '../../generators/plan.ts'
import { ALONE } from '../../generators/spread.ts'
import { type Attempt, highestGood, lowestBad, searchCeiling } from '../../run/ceiling.ts'
import { isClean, type LoadResult, resultOf } from '../../run/result.ts'
import { newMeshes, runOnce } from '../../run/run.ts'
import { generatorCheck } from '../effort.ts'
import { percentileCheck, samplesFor, secondsFor } from '../percentiles.ts'
import { type Findings, type Graph, type Scenario, type ScenarioSetup, sizeOf } from '../scenario.ts'

const RATES = [50, 300, 1_000, 2_500, 5_000, 10_000, 15_000, 20_000, 30_000, 40_000]
const SPLITS = 3
const QUICK_RATES = [300, 1_000, 5_000, 20_000]
const QUICK_SPLITS = 1
const P99_MS_MAX = 100
const RATE_MIN = 1_000

export const throughput: Scenario = {
  name: 'throughput',
  summary: 'the highest rate with p99 ≤ 100 ms: 50, 300, 1,000, … messages a second, then between the last two',
  bar: `${count(RATE_MIN)}/s and more, p99 ≤ ${P99_MS_MAX} ms`,
  reported: 'inconclusive; 150–200 messages/s',
  run,
}

type Tried = Attempt<LoadResult>

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { target, options, display } = setup
  const { peers, seconds } = sizeOf(setup, { peers: 100, seconds: 10 }, { peers: 50, seconds: 3 })
  const attempts = await searchCeiling(searchOf(setup), async (rate) => {
    const lasts = options.asked.seconds ?? Math.max(seconds, secondsFor(99, rate))
    display.step(`${count(rate)} messages a second for ${count(lasts)} s`)
    const { payloadBytes, seed } = options
    const plan: Plan = { peers, total: rate * lasts, rate, payloadBytes, seed, isOneWay: false, spread: ALONE }
    const meshes = await newMeshes({ plan, target }, teardown)
    const outcome = await runOnce({ plan, meshes, target, options, display }, teardown)
    const found = resultOf(outcome, target, options)
    return { rate, isGood: isBelowCeiling(found), found }
  })
  return findingsOf(attempts, target.version.limits)
}

/** A rate that was asked for is the only one. */
function searchOf({ options }: ScenarioSetup) {
  if (options.rate !== null) return { rates: [options.rate], splits: 0 }
  return options.isQuick ? { rates: QUICK_RATES, splits: QUICK_SPLITS } : { rates: RATES, splits: SPLITS }
}

/** With too few samples for its percentile a rate is held when nothing fails. */
const isBelowCeiling = (result: LoadResult): boolean =>
  isClean(result) && (result.delivered < samplesFor(99) || result.e2eMs.p99 <= P99_MS_MAX)

function findingsOf(attempts: readonly Tried[], limits: 'on' | 'off'): Findings {
  const results = attempts.map(({ found }) => found)
  const best = highestGood(attempts)
  const bad = lowestBad(attempts)
  const share = Math.max(...results.map(({ loadgenCpuShareMax }) => loadgenCpuShareMax))
  const most = Math.max(...attempts.map(({ rate }) => rate))
  const asked = Math.min(RATE_MIN, most)
  const reached = bad === undefined ? ', and more was not tried' : ` and ${count(bad)} not`
  return {
    headline: best ? `${count(best.rate)} messages a second held${reached}` : 'no rate was held',
    shown: best ? `${count(best.rate)}/s, p99 ${figure(best.found.e2eMs.p99)} ms` : 'none held',
    sheets: [sheetOf(attempts)],
    facts: [
      [
        'search',
        'a rate is over when it was not held twice, and the climb ends with two such rates; then the span below is split',
      ],
      ['limiter', `${limits}, says the broker at /version; ${count(refusedOf(results))} sends were refused`],
    ],
    checks: [
      { about: 'mail', isMet: limits === 'off', sentence: "The broker's rate limits were off." },
      {
        about: 'mail',
        isMet: results.every(isComplete),
        sentence: 'Nothing was lost at any rate, nor came twice or out of order.',
      },
      { about: 'cost', isMet: (best?.rate ?? 0) >= asked, sentence: `${count(asked)} messages a second are held.` },
      ...(best ? [bestCheck(best)] : []),
      generatorCheck(share),
    ],
    graphs: [graphOf(attempts)],
    figures: {
      messagesPerSecondHeld: best?.rate ?? 0,
      e2eMsP99Held: best?.found.e2eMs.p99 ?? 0,
      messagesPerSecondTried: most,
      attempts: attempts.length,
      refused: refusedOf(results),
      generatorShare: share,
    },
  }
}

const bestCheck = ({ rate, found }: Tried) =>
  percentileCheck({
    ...{ percent: 99, samples: found.delivered, ms: found.e2eMs.p99, maxMs: P99_MS_MAX },
    of: `messages at ${count(rate)}/s`,
  })

function graphOf(attempts: readonly Tried[]): Graph {
  const inOrder = attempts.toSorted((a, b) => a.rate - b.rate)
  return {
    title: 'Latency against the rate',
    x: 'messages a second',
    y: 'ms',
    lines: (['p50', 'p95', 'p99'] as const).map((name) => ({
      name,
      points: inOrder.map(({ rate, found }) => [rate, found.e2eMs[name]] as const),
    })),
  }
}

/** Late is not lost. */
const isComplete = ({ lost, misdelivered, outOfOrder }: LoadResult): boolean => lost + misdelivered + outOfOrder === 0

const refusedOf = (results: readonly LoadResult[]): number =>
  results.flatMap(({ refused }) => Object.values(refused)).reduce((a, b) => a + b, 0)

function sheetOf(attempts: readonly Tried[]) {
  const rows = attempts.map(({ rate, isGood, found }) => {
    const { delivered, total, e2eMs, loadgenWasLimit } = found
    const times = [e2eMs.p50, e2eMs.p95, e2eMs.p99].map(figure)
    const state = `${isGood ? 'held' : 'over'}${loadgenWasLimit ? ', generator busy' : ''}`
    return [count(rate), `${count(delivered)} of ${count(total)}`, ...times, state]
  })
  return { head: ['asked a second', 'delivered', 'p50', 'p95', 'p99 ms', ''], rows }
}
