/**
 * In this scenario, workers send over HTTP, each one request at a time: first an increasing number of workers, then all
 * at a steady rate, then without a pause.
 */

import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, figure, percent, sum } from '@sealpost/harness/report/text'
import { clockMs } from '@sealpost/sdk'
import type { RunContext } from '../../run/run.ts'
import { Effort, type Findings, generatorCheck, latencyCheck, mailCheck, type Scenario, sizeOf } from '../scenario.ts'
import { failuresOf, HttpStage, type Ledger, soundCheck } from './stage.ts'

/** The ramp's share of the time. */
const RAMP = 1 / 5
/** A worker's interval, for 8 requests per second of ten workers. */
const EVERY_MS = 1_250
const P95_MS_MAX = 300
const ERROR_SHARE_MAX = 0.01
const LATE_MS = 10_000

export const httpSend: Scenario = {
  name: 'http-send',
  summary: 'up to 10 workers call POST /v1/send, at 8 requests per second, then without a pause, for 5 minutes',
  bar: `errors < ${ERROR_SHARE_MAX * 100} %, p95 ≤ ${P95_MS_MAX} ms`,
  reported: 'p95 14.2 ms at 8 requests/s',
  run,
}

interface Phase {
  readonly name: string
  readonly seconds: number
  /** A worker's interval; 0 for none. */
  readonly everyMs: number
  /** Whether workers start one by one over the phase. */
  readonly isRamp?: boolean
}

interface PhaseResult extends Phase {
  readonly ledger: Ledger
}

const rateOf = ({ ledger, seconds }: PhaseResult): number => ledger.acked / seconds

async function run(context: RunContext, teardown: Teardown): Promise<Findings> {
  const { target, display } = context
  const { peers: workers, seconds } = sizeOf(context, { peers: 10, seconds: 300 }, { peers: 10, seconds: 10 })
  const stage = await HttpStage.open(context, { listeners: 1, senders: workers }, teardown)
  await stage.exchange(Array.from({ length: workers }, (_, i) => [i, 0]))
  const each = (seconds * (1 - RAMP)) / 2
  const phases: Phase[] = [
    { name: 'ramp', seconds: seconds * RAMP, everyMs: EVERY_MS, isRamp: true },
    { name: 'paced', seconds: each, everyMs: EVERY_MS },
    { name: 'no pause', seconds: each, everyMs: 0 },
  ]
  const effort = new Effort()
  const results: PhaseResult[] = []
  for (const phase of phases) {
    display.step(`${phase.name}: ${count(workers)} workers for ${figure(phase.seconds)} s`)
    results.push({ ...phase, ledger: await Promise.race([runPhase(stage, phase), target.failed]) })
  }
  return findingsOf(results, { workers, dropped: stage.listeners.dropped, share: effort.share })
}

async function runPhase(stage: HttpStage, { seconds, everyMs, isRamp = false }: Phase): Promise<Ledger> {
  const { ledger, startMs } = stage.begin()
  const untilMs = startMs + seconds * 1000
  const { senders } = stage
  const work = async (worker: number): Promise<void> => {
    let dueAtMs = startMs + (worker / senders.length) * (isRamp ? seconds * 1000 : everyMs)
    while (dueAtMs < untilMs) {
      if (dueAtMs > clockMs()) await Bun.sleep(dueAtMs - clockMs())
      const begunAtMs = clockMs()
      if (begunAtMs >= untilMs) return
      await stage.send(worker, 0, begunAtMs)
      dueAtMs = Math.max(clockMs(), begunAtMs + everyMs)
    }
  }
  await Promise.all(senders.map((_, worker) => work(worker)))
  await ledger.until(ledger.acked, LATE_MS)
  return ledger
}

interface Workload {
  readonly workers: number
  readonly dropped: number
  readonly share: number
}

function findingsOf(results: readonly PhaseResult[], { workers, dropped, share }: Workload): Findings {
  const [, paced, fast] = results as [PhaseResult, PhaseResult, PhaseResult]
  const ledgers = results.map(({ ledger }) => ledger)
  const sent = sum(ledgers.map((ledger) => ledger.sent))
  const errorShare = sum(ledgers.map(({ failedCount }) => failedCount)) / Math.max(1, sent)
  const shown = [paced, fast].map((phase) => `p95 ${figure(phase.ledger.ack.at(95))} ms at ${count(rateOf(phase))}/s`)
  const phaseCheck = (phase: PhaseResult) =>
    latencyCheck(phase.ledger.ack, { percent: 95, maxMs: P95_MS_MAX, of: `requests at ${count(rateOf(phase))}/s` })
  const isComplete = ledgers.every(({ delivered, acked }) => delivered >= acked)
  return {
    headline: `${count(sent)} requests of ${count(workers)} workers: ${shown.join(', ')}`,
    shown: `errors ${percent(errorShare)}, ${shown.join(', ')}`,
    sheets: [sheetOf(results)],
    facts: [
      ['paced', `each worker sends a request every ${count(EVERY_MS)} ms, as in the published report`],
      ['no pause', 'each worker sends its next request after the reply to the previous one'],
    ],
    checks: [
      mailCheck(errorShare < ERROR_SHARE_MAX, `Under 1 % of the requests failed (${percent(errorShare)}).`),
      phaseCheck(paced),
      phaseCheck(fast),
      mailCheck(isComplete, 'Every message that was confirmed as stored arrived.'),
      soundCheck(ledgers.every(({ isSound }) => isSound)),
      // A broker's end fails the run as well.
      mailCheck(dropped === 0, 'The broker did not restart.'),
      generatorCheck(share),
    ],
    graphs: [paced, fast].map(({ ledger: { graph }, name }) => ({ ...graph, title: `${graph.title}, ${name}` })),
    figures: {
      requests: sent,
      errorShare,
      ...figuresOf('paced', paced),
      ...figuresOf('noPause', fast),
      generatorShare: share,
    },
  }
}

function figuresOf(name: string, phase: PhaseResult): Record<string, number> {
  const { ack, e2e } = phase.ledger
  return {
    [`${name}RequestsPerSecond`]: rateOf(phase),
    [`${name}RequestMsP50`]: ack.at(50),
    [`${name}RequestMsP95`]: ack.at(95),
    [`${name}RequestMsP99`]: ack.at(99),
    [`${name}E2eMsP95`]: e2e.at(95),
  }
}

function sheetOf(results: readonly PhaseResult[]) {
  const rows = results.map((phase) => {
    const { ack, e2e, sent } = phase.ledger
    const times = [ack.at(50), ack.at(95), ack.at(99), e2e.at(95)].map(figure)
    return [phase.name, figure(phase.seconds), count(sent), figure(rateOf(phase)), ...times, failuresOf(phase.ledger)]
  })
  const head = ['phase', 'seconds', 'requests', 'per second', 'reply p50', 'p95', 'p99', 'push p95 ms', 'failed']
  return { head, rows }
}
