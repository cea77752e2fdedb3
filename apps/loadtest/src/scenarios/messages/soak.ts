/** A steady rate for a time: neither latency nor memory nor tables may grow with it. */
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, figure } from '@sealpost/harness/report/text'
import type { Plan } from '../../generators/plan.ts'
import { ALONE } from '../../generators/spread.ts'
import { loadChapter } from '../../report/load-chapter.ts'
import { isClean, resultOf } from '../../run/result.ts'
import { runSoak, type SoakFigures } from '../../soak/soak.ts'
import { soakSheet } from '../../soak/soak-report.ts'
import { generatorCheck } from '../effort.ts'
import { type Findings, type Graph, type Scenario, type ScenarioSetup, sizeOf } from '../scenario.ts'

export const soak: Scenario = {
  name: 'soak',
  summary: '100 peers, 2,000 messages a second for 10 minutes',
  bar: 'flat p99, memory and table size',
  reported: null,
  run,
}

const RATE = 2_000
const QUICK_RATE = 500

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { target, options, display } = setup
  const { peers, seconds } = sizeOf(setup, { peers: 100, seconds: 600 }, { peers: 50, seconds: 25 })
  const rate = options.rate ?? (options.isQuick ? QUICK_RATE : RATE)
  const { payloadBytes, seed } = options
  const plan: Plan = { peers, total: rate * seconds, rate, payloadBytes, seed, isOneWay: false, spread: ALONE }
  const soaking = { seconds, holdSeconds: null, backlog: 0 }
  const { outcome, figures } = await runSoak({ soak: soaking, plan, target, options, display }, teardown)
  const result = resultOf(outcome, target, options)
  const chapter = loadChapter(result, outcome.verdict.spans)
  const { rows, verdicts } = figures
  const [second, last] = [rows[1]!, rows.at(-1)!]
  const steady = verdicts.map((verdict) => ({ about: 'cost' as const, ...verdict, sentence: `${verdict.sentence}.` }))
  return {
    headline: `${count(rate)} a second for ${count(seconds)} s: p99 ${figure(second.p99)} → ${figure(last.p99)} ms`,
    shown: `p99 ${figure(second.p99)} → ${figure(last.p99)} ms, ${figure(second.brokerRssMb ?? 0)} → ${figure(last.brokerRssMb ?? 0)} MB`,
    sheets: [...chapter.sheets.slice(0, 1), soakSheet(figures)],
    facts: chapter.facts,
    checks: [
      { about: 'mail', isMet: isClean(result), sentence: 'Every message arrived once, in order.' },
      ...steady,
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
  const line = (name: 'p50' | 'p99') => ({ name, points: rows.map((row) => [row.fromSeconds, row[name]] as const) })
  return [
    { title: 'Latency by the span', x: 'seconds', y: 'ms', lines: [line('p50'), line('p99')] },
    { title: "The broker's memory", x: 'seconds', y: 'MB', lines: [{ name: 'RSS', points: memory }] },
  ]
}
