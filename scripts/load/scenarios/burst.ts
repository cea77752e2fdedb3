/** Everybody writes to random others as fast as the window admits, all at once: the main job. */
import type { Teardown } from '../../lib/teardown.ts'
import { loadChapter } from '../html/load-chapter.ts'
import type { Plan } from '../plan.ts'
import { resultOf } from '../result.ts'
import { newMeshes, runOnce } from '../run.ts'
import { ALONE } from '../spread.ts'
import { count, figure } from '../text.ts'
import { type Findings, type Scenario, type ScenarioSetup, sizeOf } from './scenario.ts'

/** What the reports had at best; `sweep` is held against it, too. */
export const REPORTED = { text: '1,372 messages/s; p99 1.3–34.8 s', perSecond: 1_372, p99Ms: 1_300 } as const
export const BAR = `more than ${count(REPORTED.perSecond)}/s, p99 < ${figure(REPORTED.p99Ms / 1000)} s, none lost`

export const burst: Scenario = {
  name: 'burst',
  summary: '100 peers × 1,000 messages to random others, as fast as the window admits',
  bar: BAR,
  reported: REPORTED.text,
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
  const meshes = await newMeshes({ plan, target, options }, teardown)
  const outcome = await runOnce({ plan, meshes, target, options, display, spanMs: SPAN_MS }, teardown)
  const result = resultOf(outcome, target, options)
  const { messagesPerSecond, delivered, lost, ackMs, e2eMs } = result
  const { headline, shown, sheets, facts, checks, graphs } = loadChapter(result, outcome.verdict.spans)
  const isAhead = messagesPerSecond > REPORTED.perSecond && e2eMs.p99 < REPORTED.p99Ms
  return {
    ...{ headline, shown, sheets, facts, graphs },
    checks: [...checks, { about: 'cost', isMet: isAhead, sentence: `It is ${BAR} (${shown}).` }],
    figures: {
      ...{ messagesPerSecond, delivered, lost },
      ...{ ackMsP50: ackMs.p50, ackMsP99: ackMs.p99, e2eMsP50: e2eMs.p50, e2eMsP99: e2eMs.p99 },
      generatorShare: result.loadgenCpuShareMax,
    },
  }
}
