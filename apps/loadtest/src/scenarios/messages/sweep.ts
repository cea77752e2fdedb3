/** The burst with more and more peers: how speed and latency change with them. */
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, figure } from '@sealpost/harness/report/text'
import type { Plan } from '../../generators/plan.ts'
import { ALONE } from '../../generators/spread.ts'
import { bestSweepP99Ms, PUBLISHED, RERUN_PER_SECOND } from '../../report/earlier.ts'
import { isClean, type LoadResult, resultOf } from '../../run/result.ts'
import { newMeshes, runOnce } from '../../run/run.ts'
import { generatorCheck } from '../effort.ts'
import { percentileCheck } from '../percentiles.ts'
import { type Check, type Findings, type Scenario, type ScenarioSetup, sizeOf } from '../scenario.ts'

export const SWEEP_PEERS = [10, 25, 50, 100]
export const SWEEP_MESSAGES = 100

const BAR = `more than ${count(RERUN_PER_SECOND)}/s, call → push p99 below the best known of each size`
const REPORTED = `p99 ${Object.values(PUBLISHED.sweepP99Ms).map(seconds).join(', ')} s`

export const sweep: Scenario = {
  name: 'sweep',
  summary: `${SWEEP_PEERS.join(', ')} peers × ${SWEEP_MESSAGES} messages, each as fast as the window admits`,
  bar: BAR,
  reported: REPORTED,
  run,
}

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const results: LoadResult[] = []
  for (const peers of sizesOf(setup)) results.push(await oneSize(setup, peers, teardown))
  return findingsOf(results)
}

/** The short form leaves out what lies between. */
function sizesOf(setup: ScenarioSetup): readonly number[] {
  const most = SWEEP_PEERS.at(-1)!
  const { peers } = sizeOf(setup, { peers: most, seconds: 0 }, { peers: most, seconds: 0 })
  const sizes = SWEEP_PEERS.filter((size) => size < peers)
  return setup.options.isQuick ? [...sizes.slice(0, 1), peers] : [...sizes, peers]
}

async function oneSize({ target, options, display }: ScenarioSetup, peers: number, teardown: Teardown) {
  const each = options.asked.messages ?? SWEEP_MESSAGES
  const { payloadBytes, seed } = options
  const plan: Plan = { peers, total: peers * each, rate: null, payloadBytes, seed, isOneWay: false, spread: ALONE }
  const meshes = await newMeshes({ plan, target }, teardown)
  return resultOf(await runOnce({ plan, meshes, target, options, display }, teardown), target, options)
}

function findingsOf(results: readonly LoadResult[]): Findings {
  const best = Math.max(...results.map(({ messagesPerSecond }) => messagesPerSecond))
  const worst = Math.max(...results.map(({ callToPushMs }) => callToPushMs.p99))
  const share = Math.max(...results.map(({ loadgenCpuShareMax }) => loadgenCpuShareMax))
  const shown = `${count(best)}/s, call → push p99 ${figure(worst)} ms`
  const isFaster = best > RERUN_PER_SECOND
  const speed = `More than ${count(RERUN_PER_SECOND)} messages a second arrived with the best size (${count(best)}).`
  return {
    headline: `${results.map(({ peers }) => count(peers)).join(', ')} peers: ${count(best)} a second at best, call → push p99 at most ${figure(worst)} ms`,
    shown,
    sheets: [sheetOf(results)],
    facts: [],
    checks: [
      {
        about: 'mail',
        isMet: results.every(isClean),
        sentence: 'Every message arrived once, in order, with every size.',
      },
      { about: 'cost', isMet: isFaster, sentence: speed },
      ...results.map(sizeCheck),
      generatorCheck(share),
    ],
    graphs: [
      {
        title: 'Call → push against the peers',
        x: 'peers',
        y: 'ms',
        lines: (['p50', 'p95', 'p99'] as const).map((name) => ({
          name,
          points: results.map(({ peers, callToPushMs }) => [peers, callToPushMs[name]] as const),
        })),
      },
    ],
    figures: {
      messagesPerSecond: best,
      callToPushMsP99: worst,
      e2eMsP99: Math.max(...results.map(({ e2eMs }) => e2eMs.p99)),
      lost: results.reduce((sum, { lost }) => sum + lost, 0),
      generatorShare: share,
    },
  }
}

function sheetOf(results: readonly LoadResult[]) {
  const rows = results.map(({ peers, total, messagesPerSecond, callToPushMs, e2eMs, lost }) => {
    const times = [callToPushMs.p50, callToPushMs.p99, e2eMs.p50, e2eMs.p95, e2eMs.p99].map(figure)
    return [...[peers, total, messagesPerSecond].map(count), ...times, count(lost)]
  })
  return {
    head: ['peers', 'messages', 'a second', 'call → push p50', 'p99', 'send → push p50', 'p95', 'p99 ms', 'lost'],
    rows,
  }
}

const sizeCheck = ({ peers, delivered, callToPushMs }: LoadResult): Check =>
  percentileCheck({
    ...{ percent: 99, samples: delivered, ms: callToPushMs.p99, maxMs: bestSweepP99Ms(peers) },
    of: `messages of ${count(peers)} peers, call → push,`,
  })

function seconds(ms: number): string {
  return figure(ms / 1000)
}
