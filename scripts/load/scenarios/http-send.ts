/** Workers that send by HTTP, one request after the other; they become more, as in the usual ramp of a k6 script. */
import { clockMs } from '@sealpost/sdk'
import type { Teardown } from '../../lib/teardown.ts'
import { count, figure } from '../text.ts'
import { Effort, generatorCheck } from './effort.ts'
import { failuresOf, graphOf, latencySheet } from './latency.ts'
import { type Findings, type Scenario, type ScenarioSetup, sizeOf } from './scenario.ts'
import { Stage } from './stage.ts'

/** The share of the time in which the workers come one by one. */
const RAMP = 1 / 3
const P95_MS_MAX = 300
const ERROR_SHARE_MAX = 0.01
const LATE_MS = 10_000

export const httpSend: Scenario = {
  name: 'http-send',
  summary: 'a ramp to 10 workers on POST /v1/send, 5 minutes',
  bar: `errors < ${ERROR_SHARE_MAX * 100} %, p95 ≤ ${P95_MS_MAX} ms`,
  reported: 'p95 14.2 ms at 8 requests/s',
  run,
}

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { target, display } = setup
  const { peers: workers, seconds } = sizeOf(setup, { peers: 10, seconds: 300 }, { peers: 10, seconds: 10 })
  const stage = await Stage.open(setup, { listeners: 1, senders: workers }, teardown)
  await stage.exchange(Array.from({ length: workers }, (_, i) => [i, 0]))
  display.step(`sending for ${seconds} s`)
  const { ledger, startMs } = stage.begin()
  const effort = new Effort()
  const work = async (worker: number): Promise<void> => {
    await Bun.sleep((worker * RAMP * seconds * 1000) / workers)
    while (clockMs() < startMs + seconds * 1000) await stage.send(worker, 0)
  }
  const working = Promise.all(Array.from({ length: workers }, (_, worker) => work(worker)))
  await Promise.race([working, target.failed])
  const { share } = effort
  await ledger.until(ledger.acked, LATE_MS)
  const errorShare = ledger.failedCount / Math.max(1, ledger.sent)
  const p95 = ledger.ack.at(95)
  const perSecond = ledger.acked / seconds
  return {
    headline: `${count(ledger.sent)} requests, ${count(perSecond)} a second, p95 ${figure(p95)} ms`,
    shown: `errors ${figure(errorShare * 100)} %, p95 ${figure(p95)} ms at ${count(perSecond)}/s`,
    sheets: [
      latencySheet([
        ['request → answer', ledger.ack],
        ['request → push', ledger.e2e],
      ]),
    ],
    facts: [['failed', failuresOf(ledger)]],
    checks: [
      {
        about: 'mail',
        isMet: errorShare < ERROR_SHARE_MAX,
        sentence: `Under 1 % of the requests failed (${figure(errorShare * 100)} %).`,
      },
      {
        about: 'cost',
        isMet: p95 < P95_MS_MAX,
        sentence: `p95 of a request is under ${P95_MS_MAX} ms (${figure(p95)}).`,
      },
      { about: 'mail', isMet: ledger.delivered >= ledger.acked, sentence: 'Whatever was answered as stored arrived.' },
      { about: 'mail', isMet: ledger.twice + ledger.wrong === 0, sentence: 'None arrived twice or damaged.' },
      // One that is started here and ends fails the run by itself.
      { about: 'mail', isMet: stage.listeners.dropped === 0, sentence: 'The broker did not start anew.' },
      generatorCheck(share),
    ],
    graphs: [graphOf(ledger)],
    figures: {
      requests: ledger.sent,
      requestsPerSecond: perSecond,
      errorShare,
      requestMsP50: ledger.ack.at(50),
      requestMsP95: p95,
      requestMsP99: ledger.ack.at(99),
      e2eMsP95: ledger.e2e.at(95),
      generatorShare: share,
    },
  }
}
