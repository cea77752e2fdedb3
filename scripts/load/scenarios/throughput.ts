/** A probe for the ceiling: more and more messages a second, until the latency or a fault says that it is reached. */
import type { Teardown } from '../../lib/teardown.ts'
import type { Plan } from '../plan.ts'
import { isClean, type LoadResult, resultOf } from '../result.ts'
import { newMeshes, runOnce } from '../run.ts'
import { ALONE } from '../spread.ts'
import { count, figure } from '../text.ts'
import { generatorCheck } from './effort.ts'
import { type Findings, type Scenario, type ScenarioSetup, sizeOf } from './scenario.ts'

const RATES = [50, 300, 1_000, 2_500, 5_000, 10_000, 15_000, 20_000, 30_000, 40_000]
const QUICK_RATES = [50, 1_000, 5_000, 20_000]
const P99_MS_MAX = 100
const RATE_MIN = 1_000

export const throughput: Scenario = {
  name: 'throughput',
  summary: '50, 300, 1,000, … messages a second, until p99 is over 100 ms or something fails',
  bar: `${count(RATE_MIN)}/s and more, p99 ≤ ${P99_MS_MAX} ms`,
  reported: 'inconclusive; 150–200 messages/s',
  run,
}

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { target, options, display } = setup
  const { peers, seconds } = sizeOf(setup, { peers: 100, seconds: 10 }, { peers: 50, seconds: 3 })
  const results: LoadResult[] = []
  for (const rate of options.rate === null ? ratesOf(setup) : [options.rate]) {
    display.step(`${rate} messages a second`)
    const { payloadBytes, seed } = options
    const plan: Plan = { peers, total: rate * seconds, rate, payloadBytes, seed, isOneWay: false, spread: ALONE }
    const meshes = await newMeshes({ plan, target, options }, teardown)
    const outcome = await runOnce({ plan, meshes, target, options, display }, teardown)
    results.push(resultOf(outcome, target, options))
    if (!isBelowCeiling(results.at(-1)!)) break
  }
  return findingsOf(results, target.version.limits)
}

const ratesOf = ({ options }: ScenarioSetup): readonly number[] => (options.isQuick ? QUICK_RATES : RATES)

const isBelowCeiling = (result: LoadResult): boolean => isClean(result) && result.e2eMs.p99 <= P99_MS_MAX

function findingsOf(results: readonly LoadResult[], limits: 'on' | 'off'): Findings {
  const held = results.filter(isBelowCeiling)
  const best = held.at(-1)
  const share = Math.max(...results.map(({ loadgenCpuShareMax }) => loadgenCpuShareMax))
  const reached = results.length > held.length ? ` and ${count(results.at(-1)!.rate!)} not` : ', and more was not tried'
  return {
    headline: best ? `${count(best.rate!)} messages a second held${reached}` : 'not even the first rate was held',
    shown: best ? `${count(best.rate!)}/s, p99 ${figure(best.e2eMs.p99)} ms` : 'none held',
    sheets: [sheetOf(results)],
    facts: [['limiter', `${limits}, says the broker at /version; ${count(refusedOf(results))} sends were refused`]],
    checks: [
      { about: 'mail', isMet: limits === 'off', sentence: "The broker's rate limits were off." },
      {
        about: 'mail',
        isMet: results.every(isComplete),
        sentence: 'Nothing was lost at any rate, nor came twice or out of order.',
      },
      {
        about: 'cost',
        isMet: (best?.rate ?? 0) >= Math.min(RATE_MIN, results.at(-1)!.rate!),
        sentence: `${count(Math.min(RATE_MIN, results.at(-1)!.rate!))} messages a second are held.`,
      },
      generatorCheck(share),
    ],
    graphs: [
      {
        title: 'Latency against the rate',
        x: 'messages a second',
        y: 'ms',
        lines: (['p50', 'p95', 'p99'] as const).map((name) => ({
          name,
          points: results.map(({ rate, e2eMs }) => [rate!, e2eMs[name]] as const),
        })),
      },
    ],
    figures: {
      messagesPerSecondHeld: best?.rate ?? 0,
      e2eMsP99Held: best?.e2eMs.p99 ?? 0,
      messagesPerSecondTried: results.at(-1)!.rate!,
      refused: refusedOf(results),
      generatorShare: share,
    },
  }
}

/** Late is not lost. */
const isComplete = ({ lost, misdelivered, outOfOrder }: LoadResult): boolean => lost + misdelivered + outOfOrder === 0

const refusedOf = (results: readonly LoadResult[]): number =>
  results.flatMap(({ refused }) => Object.values(refused)).reduce((a, b) => a + b, 0)

function sheetOf(results: readonly LoadResult[]) {
  const rows = results.map((result) => {
    const { rate, delivered, total, e2eMs, loadgenWasLimit } = result
    const times = [e2eMs.p50, e2eMs.p95, e2eMs.p99].map(figure)
    const state = isBelowCeiling(result) ? 'held' : 'over'
    return [
      count(rate!),
      `${count(delivered)} of ${count(total)}`,
      ...times,
      `${state}${loadgenWasLimit ? ', generator busy' : ''}`,
    ]
  })
  return { head: ['asked a second', 'delivered', 'p50', 'p95', 'p99 ms', ''], rows }
}
