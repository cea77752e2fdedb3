/** Workers that send by HTTP, one request after the other: they become more, then keep a pace, and then send without a pause. */

import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, figure } from '@sealpost/harness/report/text'
import { clockMs } from '@sealpost/sdk'
import { Effort, generatorCheck } from '../effort.ts'
import { failuresOf, graphOf } from '../latency.ts'
import { latencyCheck } from '../percentiles.ts'
import { type Findings, type Scenario, type ScenarioSetup, sizeOf } from '../scenario.ts'
import type { Ledger } from './ledger.ts'
import { HttpStage } from './stage.ts'

/** The share of the time in which the workers come one by one; the other two phases share the rest. */
const RAMP = 1 / 5
/** Of each worker; 10 of them make the 8 requests a second of the published report. */
const EVERY_MS = 1_250
const P95_MS_MAX = 300
const ERROR_SHARE_MAX = 0.01
const LATE_MS = 10_000

export const httpSend: Scenario = {
  name: 'http-send',
  summary: 'a ramp to 10 workers on POST /v1/send, 8 requests a second, then without a pause: 5 minutes',
  bar: `errors < ${ERROR_SHARE_MAX * 100} %, p95 ≤ ${P95_MS_MAX} ms`,
  reported: 'p95 14.2 ms at 8 requests/s',
  run,
}

interface Phase {
  readonly name: string
  readonly seconds: number
  /** From one request of a worker to its next; 0: the next when the one before is answered. */
  readonly everyMs: number
  /** The workers come one by one, over the whole phase. */
  readonly isRamp?: boolean
}

interface Played extends Phase {
  readonly ledger: Ledger
}

const rateOf = ({ ledger, seconds }: Played): number => ledger.acked / seconds

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { target, display } = setup
  const { peers: workers, seconds } = sizeOf(setup, { peers: 10, seconds: 300 }, { peers: 10, seconds: 10 })
  const stage = await HttpStage.open(setup, { listeners: 1, senders: workers }, teardown)
  await stage.exchange(Array.from({ length: workers }, (_, i) => [i, 0]))
  const each = (seconds * (1 - RAMP)) / 2
  const phases: Phase[] = [
    { name: 'ramp', seconds: seconds * RAMP, everyMs: EVERY_MS, isRamp: true },
    { name: 'paced', seconds: each, everyMs: EVERY_MS },
    { name: 'no pause', seconds: each, everyMs: 0 },
  ]
  const effort = new Effort()
  const played: Played[] = []
  for (const phase of phases) {
    display.step(`${phase.name}: ${count(workers)} workers for ${figure(phase.seconds)} s`)
    played.push({ ...phase, ledger: await Promise.race([play(stage, phase), target.failed]) })
  }
  return findingsOf(played, { workers, dropped: stage.listeners.dropped, share: effort.share })
}

async function play(stage: HttpStage, { seconds, everyMs, isRamp = false }: Phase): Promise<Ledger> {
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

interface Around {
  readonly workers: number
  readonly dropped: number
  readonly share: number
}

function findingsOf(played: readonly Played[], { workers, dropped, share }: Around): Findings {
  const [, paced, fast] = played as [Played, Played, Played]
  const ledgers = played.map(({ ledger }) => ledger)
  const sum = (pick: (of: Ledger) => number) => ledgers.reduce((all, ledger) => all + pick(ledger), 0)
  const sent = sum((ledger) => ledger.sent)
  const errorShare = sum((ledger) => ledger.failedCount) / Math.max(1, sent)
  const shown = [paced, fast].map((phase) => `p95 ${figure(phase.ledger.ack.at(95))} ms at ${count(rateOf(phase))}/s`)
  const bound = (phase: Played) => ({
    ...{ percent: 95, maxMs: P95_MS_MAX, of: `requests at ${count(rateOf(phase))}/s` },
  })
  return {
    headline: `${count(sent)} requests of ${count(workers)} workers: ${shown.join(', ')}`,
    shown: `errors ${figure(errorShare * 100)} %, ${shown.join(', ')}`,
    sheets: [sheetOf(played)],
    facts: [
      ['paced', `a request of each worker every ${count(EVERY_MS)} ms, the load of the published report`],
      ['no pause', 'the next request of a worker when the one before is answered'],
    ],
    checks: [
      {
        about: 'mail',
        isMet: errorShare < ERROR_SHARE_MAX,
        sentence: `Under 1 % of the requests failed (${figure(errorShare * 100)} %).`,
      },
      latencyCheck(paced.ledger.ack, bound(paced)),
      latencyCheck(fast.ledger.ack, bound(fast)),
      {
        about: 'mail',
        isMet: ledgers.every(({ delivered, acked }) => delivered >= acked),
        sentence: 'Whatever was answered as stored arrived.',
      },
      {
        about: 'mail',
        isMet: sum(({ twice, wrong }) => twice + wrong) === 0,
        sentence: 'None arrived twice or damaged.',
      },
      // One that is started here and ends fails the run by itself.
      { about: 'mail', isMet: dropped === 0, sentence: 'The broker did not restart.' },
      generatorCheck(share),
    ],
    graphs: [paced, fast].map((phase) => {
      const graph = graphOf(phase.ledger)
      return { ...graph, title: `${graph.title}, ${phase.name}` }
    }),
    figures: {
      requests: sent,
      errorShare,
      ...figuresOf('paced', paced),
      ...figuresOf('noPause', fast),
      generatorShare: share,
    },
  }
}

function figuresOf(name: string, phase: Played): Record<string, number> {
  const { ack, e2e } = phase.ledger
  return {
    [`${name}RequestsPerSecond`]: rateOf(phase),
    [`${name}RequestMsP50`]: ack.at(50),
    [`${name}RequestMsP95`]: ack.at(95),
    [`${name}RequestMsP99`]: ack.at(99),
    [`${name}E2eMsP95`]: e2e.at(95),
  }
}

function sheetOf(played: readonly Played[]) {
  const rows = played.map((phase) => {
    const { ack, e2e, sent } = phase.ledger
    const times = [ack.at(50), ack.at(95), ack.at(99), e2e.at(95)].map(figure)
    return [phase.name, figure(phase.seconds), count(sent), figure(rateOf(phase)), ...times, failuresOf(phase.ledger)]
  })
  return {
    head: ['phase', 'seconds', 'requests', 'a second', 'answer p50', 'p95', 'p99', 'push p95 ms', 'failed'],
    rows,
  }
}
