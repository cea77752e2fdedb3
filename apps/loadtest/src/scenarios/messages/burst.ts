/** Everybody writes to random others as fast as the window admits, all at once: the main job. */
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, figure } from '@sealpost/harness/report/text'
import type { Plan } from '../../generators/plan.ts'
import { ALONE } from '../../generators/spread.ts'
import { PUBLISHED, RERUN_PER_SECOND } from '../../report/earlier.ts'
import { loadChapter } from '../../report/load-chapter.ts'
import { resultOf } from '../../run/result.ts'
import { newMeshes, runOnce } from '../../run/run.ts'
import { percentileCheck } from '../percentiles.ts'
import { type Findings, type Scenario, type ScenarioSetup, sizeOf } from '../scenario.ts'

/** The rerun was faster than the published run, whose p99 was lower. */
const BEST = { perSecond: RERUN_PER_SECOND, p99Ms: PUBLISHED.burst.p99Ms }
const BAR = `more than ${count(BEST.perSecond)}/s, call → push p99 ≤ ${figure(BEST.p99Ms / 1000)} s, none lost`
const REPORTED = `${count(PUBLISHED.burst.delivered)} of 100,000 in ${PUBLISHED.burst.seconds} s, p99 ${figure(PUBLISHED.burst.p99Ms / 1000)} s`

export const burst: Scenario = {
  name: 'burst',
  summary: '100 peers × 1,000 messages to random others, as fast as the window admits',
  bar: BAR,
  reported: REPORTED,
  run,
}

const MESSAGES = 1_000
const QUICK_MESSAGES = 200
const SPAN_MS = 1_000

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { target, options, display } = setup
  const { peers } = sizeOf(setup, { peers: 100, seconds: 0 }, { peers: 100, seconds: 0 })
  const each = options.asked.messages ?? (options.isQuick ? QUICK_MESSAGES : MESSAGES)
  const { payloadBytes, seed } = options
  const plan: Plan = { peers, total: peers * each, rate: null, payloadBytes, seed, isOneWay: false, spread: ALONE }
  const meshes = await newMeshes({ plan, target }, teardown)
  const outcome = await runOnce({ plan, meshes, target, options, display, spanMs: SPAN_MS }, teardown)
  const result = resultOf(outcome, target, options)
  const { messagesPerSecond, delivered, lost, ackMs, e2eMs, callToPushMs } = result
  const { headline, shown, sheets, facts, checks, graphs } = loadChapter(result, outcome.verdict.spans)
  const isFaster = messagesPerSecond > BEST.perSecond
  const speed = `More than ${count(BEST.perSecond)} messages a second arrived (${count(messagesPerSecond)}).`
  return {
    ...{ headline, shown, sheets, facts, graphs },
    checks: [
      ...checks,
      { about: 'cost', isMet: isFaster, sentence: speed },
      percentileCheck({
        ...{ percent: 99, samples: delivered, ms: callToPushMs.p99, maxMs: BEST.p99Ms },
        of: 'messages, call → push,',
      }),
    ],
    figures: {
      ...{ messagesPerSecond, delivered, lost },
      ...{ ackMsP50: ackMs.p50, ackMsP99: ackMs.p99, e2eMsP50: e2eMs.p50, e2eMsP99: e2eMs.p99 },
      ...{ callToPushMsP50: callToPushMs.p50, callToPushMsP99: callToPushMs.p99 },
      generatorShare: result.loadgenCpuShareMax,
    },
  }
}
