/** A search for the ceiling of `POST /v1/send`: an open loop, whose requests are sent when they are due and not when others are answered. */

import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, figure } from '@sealpost/harness/report/text'
import { type Attempt, highestGood, lowestBad, searchCeiling } from '../../run/ceiling.ts'
import { Effort, generatorCheck } from '../effort.ts'
import { failuresOf } from '../latency.ts'
import { paced } from '../paced.ts'
import { latencyCheck, samplesFor, secondsFor } from '../percentiles.ts'
import { type Findings, type Graph, type Scenario, type ScenarioSetup, sizeOf } from '../scenario.ts'
import type { Ledger } from './ledger.ts'
import { HttpStage } from './stage.ts'

const RATES = [100, 250, 500, 1_000, 2_000, 4_000, 8_000]
const SPLITS = 3
const QUICK_RATES = [500, 2_000]
const QUICK_SPLITS = 1
const P99_MS_MAX = 100
const RATE_MIN = 500
const LISTENERS = 10
const LATE_MS = 15_000

export const httpCeiling: Scenario = {
  name: 'http-ceiling',
  summary: 'the highest rate of POST /v1/send with p99 ≤ 100 ms, from 50 peers: 100, 250, 500, …, then between',
  bar: `${count(RATE_MIN)} requests/s and more, p99 ≤ ${P99_MS_MAX} ms`,
  reported: null,
  run,
}

interface Round {
  readonly ledger: Ledger
  /** Of a core, of this program. */
  readonly share: number
}

type Tried = Attempt<Round>

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { options, display } = setup
  const { peers: senders, seconds } = sizeOf(setup, { peers: 50, seconds: 10 }, { peers: 50, seconds: 3 })
  const listeners = Math.min(LISTENERS, senders)
  const stage = await HttpStage.open(setup, { listeners, senders }, teardown)
  await stage.exchange(Array.from({ length: senders }, (_, i) => [i, i % listeners]))
  const attempts = await searchCeiling(searchOf(setup), async (rate) => {
    const lasts = options.asked.seconds ?? Math.max(seconds, secondsFor(99, rate))
    display.step(`${count(rate)} requests a second for ${count(lasts)} s`)
    const found = await oneRate(setup, stage, { perSecond: rate, seconds: lasts })
    return { rate, isGood: isHeld(found), found }
  })
  return findingsOf(attempts, stage)
}

/** A rate that was asked for is the only one. */
function searchOf({ options }: ScenarioSetup) {
  if (options.rate !== null) return { rates: [options.rate], splits: 0 }
  return options.isQuick ? { rates: QUICK_RATES, splits: QUICK_SPLITS } : { rates: RATES, splits: SPLITS }
}

interface Load {
  readonly perSecond: number
  readonly seconds: number
}

async function oneRate({ target }: ScenarioSetup, stage: HttpStage, load: Load): Promise<Round> {
  const { ledger, startMs } = stage.begin()
  const effort = new Effort()
  const sending: Promise<void>[] = []
  const [senders, listeners] = [stage.senders.length, stage.listeners.count]
  await paced({ startMs, ...load }, (turn, dueAtMs) => {
    const sender = turn % senders
    sending.push(stage.send(sender, sender % listeners, dueAtMs))
  })
  await Promise.race([Promise.all(sending), target.failed])
  const { share } = effort
  await ledger.until(ledger.acked, LATE_MS)
  return { ledger, share }
}

const isComplete = ({ ledger: { acked, delivered, twice, wrong } }: Round): boolean =>
  delivered >= acked && twice + wrong === 0

/** With too few samples for its percentile a rate is held when nothing fails. */
function isHeld(round: Round): boolean {
  const { ack, failedCount } = round.ledger
  return isComplete(round) && failedCount === 0 && (ack.count < samplesFor(99) || ack.at(99) <= P99_MS_MAX)
}

function findingsOf(attempts: readonly Tried[], { senders, listeners }: HttpStage): Findings {
  const best = highestGood(attempts)
  const bad = lowestBad(attempts)
  const share = Math.max(...attempts.map(({ found }) => found.share))
  const most = Math.max(...attempts.map(({ rate }) => rate))
  const asked = Math.min(RATE_MIN, most)
  const reached = bad === undefined ? ', and more was not tried' : ` and ${count(bad)} not`
  const p99 = best?.found.ledger.ack.at(99) ?? 0
  const bound = { percent: 99, maxMs: P99_MS_MAX, of: `requests at ${count(best?.rate ?? 0)}/s` }
  return {
    headline: best ? `${count(best.rate)} requests a second held${reached}` : 'no rate was held',
    shown: best ? `${count(best.rate)}/s, p99 ${figure(p99)} ms` : 'none held',
    sheets: [sheetOf(attempts)],
    facts: [
      ['shape', `${count(senders.length)} peers of one address, one message a request, to ${count(listeners.count)}`],
      [
        'search',
        'a rate is over when it was not held twice, and the climb ends with two such rates; then the span below is split',
      ],
    ],
    checks: [
      {
        about: 'mail',
        isMet: attempts.every(({ found }) => isComplete(found)),
        sentence: 'At every rate all that was answered as stored arrived, once and undamaged.',
      },
      { about: 'mail', isMet: listeners.dropped === 0, sentence: 'No listener was dropped.' },
      { about: 'cost', isMet: (best?.rate ?? 0) >= asked, sentence: `${count(asked)} requests a second are held.` },
      ...(best ? [latencyCheck(best.found.ledger.ack, bound)] : []),
      generatorCheck(share),
    ],
    graphs: [graphOf(attempts)],
    figures: {
      requestsPerSecondHeld: best?.rate ?? 0,
      requestMsP99Held: p99,
      requestsPerSecondTried: most,
      attempts: attempts.length,
      failed: attempts.reduce((sum, { found }) => sum + found.ledger.failedCount, 0),
      generatorShare: share,
    },
  }
}

function sheetOf(attempts: readonly Tried[]) {
  const rows = attempts.map(({ rate, isGood, found: { ledger, share } }) => {
    const { ack, e2e, acked, sent } = ledger
    const times = [ack.at(50), ack.at(95), ack.at(99), e2e.at(99)].map(figure)
    const busy = `${figure(share * 100)} %`
    return [
      count(rate),
      `${count(acked)} of ${count(sent)}`,
      ...times,
      failuresOf(ledger),
      busy,
      isGood ? 'held' : 'over',
    ]
  })
  return {
    head: ['asked a second', 'stored', 'answer p50', 'p95', 'p99', 'push p99 ms', 'failed', 'generator', ''],
    rows,
  }
}

function graphOf(attempts: readonly Tried[]): Graph {
  const inOrder = attempts.toSorted((a, b) => a.rate - b.rate)
  return {
    title: 'Due → answer against the rate',
    x: 'requests a second',
    y: 'ms',
    lines: [50, 95, 99].map((percent) => ({
      name: `p${percent}`,
      points: inOrder.map(({ rate, found }) => [rate, found.ledger.ack.at(percent)] as const),
    })),
  }
}
