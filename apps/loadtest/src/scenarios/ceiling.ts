/**
 * Defines two scenarios that search for the highest sustained rate, of messages and of HTTP requests: up a ladder, then
 * by splitting the interval between good and bad.
 */

import { atRate } from '@sealpost/harness/programs/pace'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, type Fact, figure, percent, sum } from '@sealpost/harness/report/text'
import { planOf } from '../generators/plan.ts'
import { isClean, type LoadResult } from '../run/result.ts'
import { type RunContext, runPlan } from '../run/run.ts'
import { failuresOf, HttpStage, type Ledger } from './http/stage.ts'
import {
  costCheck,
  Effort,
  type Findings,
  generatorCheck,
  latencyCheck,
  mailCheck,
  percentileCheck,
  percentilesGraph,
  type Scenario,
  samplesFor,
  secondsFor,
  sizeOf,
} from './scenario.ts'

interface Attempt<Found> {
  readonly rate: number
  readonly isGood: boolean
  readonly found: Found
}

interface Search {
  /** The ladder, ascending. */
  readonly rates: readonly number[]
  /** The maximum number of splits of the interval. */
  readonly splits: number
}

/** The ratio of an interval's ends below which it is not split, because that would measure noise. */
const NARROW = 1.1

/**
 * Searches by attempts. Two failed attempts make a rate bad, and two bad rates end the ladder, because other programs
 * may spoil a few.
 * @returns all attempts in order
 */
export async function searchCeiling<Found>(
  { rates, splits }: Search,
  attempt: (rate: number) => Promise<Attempt<Found>>,
): Promise<Attempt<Found>[]> {
  const attempts: Attempt<Found>[] = []
  const isHeld = async (rate: number): Promise<boolean> => {
    for (let time = 0; time < 2; time++) {
      attempts.push(await attempt(rate))
      if (attempts.at(-1)!.isGood) return true
    }
    return false
  }
  let [good, bad] = [0, Infinity]
  for (const rate of rates) {
    if (await isHeld(rate)) [good, bad] = [rate, Infinity]
    else if (bad < Infinity) break
    else bad = rate
  }
  for (let split = 0; split < splits && bad < Infinity && bad > good * NARROW; split++) {
    const rate = between(good, bad)
    if (rate <= good || rate >= bad) break
    if (await isHeld(rate)) good = rate
    else bad = rate
  }
  return attempts
}

/** Returns a rate between the two, rounded to two digits. */
function between(good: number, bad: number): number {
  const middle = good === 0 ? bad / 2 : Math.sqrt(good * bad)
  const unit = Math.max(1, 10 ** (Math.floor(Math.log10(middle)) - 1))
  return Math.round(middle / unit) * unit
}

export function highestGood<Found>(attempts: readonly Attempt<Found>[]): Attempt<Found> | undefined {
  return attempts.filter(({ isGood }) => isGood).toSorted((a, b) => b.rate - a.rate)[0]
}

/** Returns the lowest bad rate above the highest good one, if any. */
export function lowestBad(attempts: readonly Attempt<unknown>[]): number | undefined {
  const best = highestGood(attempts)?.rate ?? 0
  const rates = attempts.map(({ rate }) => rate).filter((rate) => rate > best)
  return rates.toSorted((a, b) => a - b)[0]
}

/** Returns the search, which `--rate` replaces with one rate. */
function searchOf({ options }: RunContext, full: Search, quick: Search): Search {
  if (options.rate !== null) return { rates: [options.rate], splits: 0 }
  return options.isQuick ? quick : full
}

/** Returns `--seconds`, or enough seconds for a p99. */
const secondsAt = ({ options }: RunContext, rate: number, least: number): number =>
  options.asked.seconds ?? Math.max(least, secondsFor(99, rate))

const P99_MS_MAX = 100

const SEARCH_FACT: Fact = [
  'search',
  'a rate fails if two attempts miss it; the climb ends after two failed rates, then the interval below is bisected',
]

/** Returns the report's part that both scenarios share. */
function outcomeOf<Found>(attempts: readonly Attempt<Found>[], unit: 'messages' | 'requests', rateMin: number) {
  const best = highestGood(attempts)
  const bad = lowestBad(attempts)
  const tried = Math.max(...attempts.map(({ rate }) => rate))
  const asked = Math.min(rateMin, tried)
  const reached = bad === undefined ? ', and more was not tried' : ` and ${count(bad)} not`
  return {
    best,
    tried,
    headline: best ? `${count(best.rate)} ${unit} per second were held${reached}` : 'no rate was held',
    check: costCheck((best?.rate ?? 0) >= asked, `The broker holds ${count(asked)} ${unit} per second.`),
  }
}

const byRate = <Found>(attempts: readonly Attempt<Found>[]) => attempts.toSorted((a, b) => a.rate - b.rate)

const MESSAGES_MIN = 1_000
const MESSAGE_SEARCH = { rates: [50, 300, 1_000, 2_500, 5_000, 10_000, 15_000, 20_000, 30_000, 40_000], splits: 3 }
const QUICK_MESSAGE_SEARCH = { rates: [300, 1_000, 5_000, 20_000], splits: 1 }

export const throughput: Scenario = {
  name: 'throughput',
  summary: 'find the highest rate with p99 ≤ 100 ms: 50, 300, 1,000, … messages per second, then between the last two',
  bar: `${count(MESSAGES_MIN)}/s and more, p99 ≤ ${P99_MS_MAX} ms`,
  reported: 'inconclusive; 150–200 messages/s',
  run: runThroughput,
}

async function runThroughput(context: RunContext, teardown: Teardown): Promise<Findings> {
  const { target, display } = context
  const { peers, seconds } = sizeOf(context, { peers: 100, seconds: 10 }, { peers: 50, seconds: 3 })
  const attempts = await searchCeiling(searchOf(context, MESSAGE_SEARCH, QUICK_MESSAGE_SEARCH), async (rate) => {
    const lasts = secondsAt(context, rate, seconds)
    display.step(`${count(rate)} messages per second for ${count(lasts)} s`)
    const plan = planOf({ peers, total: rate * lasts, rate })
    const { result: found } = await runPlan(context, { plan }, teardown)
    return { rate, isGood: isBelowCeiling(found), found }
  })
  return throughputFindings(attempts, target.version.limits)
}

/** Returns whether the rate was held. Without a p99, it was unless something failed. */
const isBelowCeiling = (result: LoadResult): boolean =>
  isClean(result) && (result.delivered < samplesFor(99) || result.e2eMs.p99 <= P99_MS_MAX)

function throughputFindings(attempts: readonly Attempt<LoadResult>[], limits: 'on' | 'off'): Findings {
  const results = attempts.map(({ found }) => found)
  const { best, tried, headline, check } = outcomeOf(attempts, 'messages', MESSAGES_MIN)
  const share = Math.max(...results.map(({ loadgenCpuShareMax }) => loadgenCpuShareMax))
  const refused = sum(results.flatMap((result) => Object.values(result.refused)))
  // A late message is not lost.
  const isComplete = results.every(({ lost, misdelivered, outOfOrder }) => lost + misdelivered + outOfOrder === 0)
  const p99 = best?.found.e2eMs.p99 ?? 0
  const bound = { percent: 99, samples: best?.found.delivered ?? 0, ms: p99, maxMs: P99_MS_MAX }
  return {
    headline,
    shown: best ? `${count(best.rate)}/s, p99 ${figure(p99)} ms` : 'none held',
    sheets: [throughputSheet(attempts)],
    facts: [
      SEARCH_FACT,
      ['limiter', `${limits} according to the broker's /version; ${count(refused)} sends were refused`],
    ],
    checks: [
      mailCheck(limits === 'off', "The broker's rate limits were off."),
      mailCheck(isComplete, 'At no rate was a message lost, duplicated or out of order.'),
      check,
      ...(best ? [percentileCheck({ ...bound, of: `messages at ${count(best.rate)}/s` })] : []),
      generatorCheck(share),
    ],
    graphs: [
      percentilesGraph(
        'Latency by rate',
        'messages per second',
        byRate(attempts).map(({ rate, found }) => [rate, found.e2eMs]),
      ),
    ],
    figures: {
      messagesPerSecondHeld: best?.rate ?? 0,
      e2eMsP99Held: p99,
      messagesPerSecondTried: tried,
      attempts: attempts.length,
      refused,
      generatorShare: share,
    },
  }
}

function throughputSheet(attempts: readonly Attempt<LoadResult>[]) {
  const rows = attempts.map(({ rate, isGood, found }) => {
    const { delivered, total, e2eMs, loadgenWasLimit } = found
    const times = [e2eMs.p50, e2eMs.p95, e2eMs.p99].map(figure)
    const state = `${isGood ? 'held' : 'over'}${loadgenWasLimit ? ', generator busy' : ''}`
    return [count(rate), `${count(delivered)} of ${count(total)}`, ...times, state]
  })
  return { head: ['requested per second', 'delivered', 'p50', 'p95', 'p99 ms', ''], rows }
}

const REQUESTS_MIN = 500
const REQUEST_SEARCH = { rates: [100, 250, 500, 1_000, 2_000, 4_000, 8_000], splits: 3 }
const QUICK_REQUEST_SEARCH = { rates: [500, 2_000], splits: 1 }
const LISTENERS = 10
const LATE_MS = 15_000

export const httpCeiling: Scenario = {
  name: 'http-ceiling',
  summary:
    'find the highest rate of POST /v1/send with p99 ≤ 100 ms, from 50 peers: 100, 250, 500, …, then between the last two',
  bar: `${count(REQUESTS_MIN)} requests/s and more, p99 ≤ ${P99_MS_MAX} ms`,
  reported: null,
  run: runHttpCeiling,
}

interface HttpRound {
  readonly ledger: Ledger
  /** The share of a core that this program used. */
  readonly share: number
}

async function runHttpCeiling(context: RunContext, teardown: Teardown): Promise<Findings> {
  const { display } = context
  const { peers: senders, seconds } = sizeOf(context, { peers: 50, seconds: 10 }, { peers: 50, seconds: 3 })
  const listeners = Math.min(LISTENERS, senders)
  const stage = await HttpStage.open(context, { listeners, senders }, teardown)
  await stage.exchange(Array.from({ length: senders }, (_, i) => [i, i % listeners]))
  const attempts = await searchCeiling(searchOf(context, REQUEST_SEARCH, QUICK_REQUEST_SEARCH), async (rate) => {
    const lasts = secondsAt(context, rate, seconds)
    display.step(`${count(rate)} requests per second for ${count(lasts)} s`)
    const found = await requestsAt(context, stage, { perSecond: rate, until: lasts })
    return { rate, isGood: isHeld(found), found }
  })
  return httpFindings(attempts, stage)
}

/** Runs an open loop of requests: each is sent when due. */
async function requestsAt(
  { target }: RunContext,
  stage: HttpStage,
  load: { readonly perSecond: number; readonly until: number },
): Promise<HttpRound> {
  const { ledger, startMs } = stage.begin()
  const effort = new Effort()
  const [senders, listeners] = [stage.senders.length, stage.listeners.count]
  const sending = atRate({ startMs, ...load }, (turn, dueAtMs) => {
    const sender = turn % senders
    return stage.send(sender, sender % listeners, dueAtMs)
  })
  await Promise.race([sending, target.failed])
  const { share } = effort
  await ledger.until(ledger.acked, LATE_MS)
  return { ledger, share }
}

const isComplete = ({ ledger }: HttpRound): boolean => ledger.delivered >= ledger.acked && ledger.isSound

function isHeld(round: HttpRound): boolean {
  const { ack, failedCount } = round.ledger
  return isComplete(round) && failedCount === 0 && (ack.count < samplesFor(99) || ack.at(99) <= P99_MS_MAX)
}

function httpFindings(attempts: readonly Attempt<HttpRound>[], { senders, listeners }: HttpStage): Findings {
  const { best, tried, headline, check } = outcomeOf(attempts, 'requests', REQUESTS_MIN)
  const share = Math.max(...attempts.map(({ found }) => found.share))
  const p99 = best?.found.ledger.ack.at(99) ?? 0
  const bound = { percent: 99, maxMs: P99_MS_MAX, of: `requests at ${count(best?.rate ?? 0)}/s` }
  const shape = `${count(senders.length)} peers of one address, one message a request, to ${count(listeners.count)}`
  const claim = 'At every rate, all messages that were confirmed as stored arrived once and undamaged.'
  return {
    headline,
    shown: best ? `${count(best.rate)}/s, p99 ${figure(p99)} ms` : 'none held',
    sheets: [httpSheet(attempts)],
    facts: [['shape', shape], SEARCH_FACT],
    checks: [
      mailCheck(
        attempts.every(({ found }) => isComplete(found)),
        claim,
      ),
      mailCheck(listeners.dropped === 0, 'No listener was disconnected.'),
      check,
      ...(best ? [latencyCheck(best.found.ledger.ack, bound)] : []),
      generatorCheck(share),
    ],
    graphs: [
      percentilesGraph(
        'Due → reply by rate',
        'requests per second',
        byRate(attempts).map(({ rate, found }) => [rate, found.ledger.ack.percentiles]),
      ),
    ],
    figures: {
      requestsPerSecondHeld: best?.rate ?? 0,
      requestMsP99Held: p99,
      requestsPerSecondTried: tried,
      attempts: attempts.length,
      failed: sum(attempts.map(({ found }) => found.ledger.failedCount)),
      generatorShare: share,
    },
  }
}

function httpSheet(attempts: readonly Attempt<HttpRound>[]) {
  const rows = attempts.map(({ rate, isGood, found: { ledger, share } }) => {
    const { ack, e2e, acked, sent } = ledger
    const times = [ack.at(50), ack.at(95), ack.at(99), e2e.at(99)].map(figure)
    const state = [failuresOf(ledger), percent(share), isGood ? 'held' : 'over']
    return [count(rate), `${count(acked)} of ${count(sent)}`, ...times, ...state]
  })
  const head = ['requested per second', 'stored', 'reply p50', 'p95', 'p99', 'push p99 ms', 'failed', 'generator', '']
  return { head, rows }
}
