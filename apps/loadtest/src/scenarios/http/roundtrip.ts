/** Many sockets are held, a few of them are written to: from a request by HTTP to the push on a WebSocket. */
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, figure } from '@sealpost/harness/report/text'
import { profileWords } from '../../command/profile.ts'
import { Crowds } from '../../generators/crowds.ts'
import { Effort, generatorCheck } from '../effort.ts'
import { failuresOf, graphOf, latencySheet } from '../latency.ts'
import { paced } from '../paced.ts'
import { latencyCheck } from '../percentiles.ts'
import { type Findings, type Scenario, type ScenarioSetup, sizeOf } from '../scenario.ts'
import type { Ledger } from './ledger.ts'
import { HttpStage } from './stage.ts'

const ACTIVE = 50
/** Messages a second to each. */
const PER_SECOND = 4
const P95_MS_MAX = 100
const LATE_MS = 10_000

export const roundtrip: Scenario = {
  name: 'roundtrip',
  summary: '2,000 sockets held, 50 of them written to: HTTP send → WebSocket push',
  bar: `p95 ≤ ${P95_MS_MAX} ms, none dropped`,
  reported: 'p95 1,758 ms',
  run,
}

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { target, options, display } = setup
  const { peers, seconds } = sizeOf(setup, { peers: 2_000, seconds: 30 }, { peers: 300, seconds: 5 })
  const active = Math.min(ACTIVE, Math.ceil(peers / 2))
  const silent = peers - active
  const stage = await HttpStage.open(setup, { listeners: active, senders: active, others: silent }, teardown)
  const {
    failed,
    shards: [place],
  } = target
  const crowdSetup = { mesh: stage.others, place: place!, programs: 1, words: profileWords(options), failed }
  display.step(`connecting ${silent} silent peers`)
  const crowds = await Crowds.open(crowdSetup, teardown)
  await crowds.grow(silent)
  await stage.exchange(Array.from({ length: active }, (_, i) => [i, i]))

  display.step(`sending for ${seconds} s`)
  const { ledger, startMs } = stage.begin()
  const effort = new Effort()
  const sending: Promise<void>[] = []
  await paced({ startMs, perSecond: PER_SECOND * active, seconds }, (turn, dueAtMs) => {
    sending.push(stage.send(turn % active, turn % active, dueAtMs))
  })
  await Promise.race([Promise.all(sending), failed])
  await ledger.until(ledger.sent, LATE_MS)
  const { share } = effort
  const { online, dropped } = await crowds.look()
  await crowds.leave()
  const droppedAll = dropped + stage.listeners.dropped
  return findingsOf(ledger, { active, sockets: online + active, missing: silent - online, dropped: droppedAll, share })
}

interface Held {
  /** Those that were written to. */
  readonly active: number
  readonly sockets: number
  /** Of the others, those that were not there in the end. */
  readonly missing: number
  readonly dropped: number
  readonly share: number
}

function findingsOf(ledger: Ledger, { active, sockets, missing, dropped, share }: Held): Findings {
  const lost = ledger.sent - ledger.delivered
  const p95 = ledger.e2e.at(95)
  return {
    headline: `${count(ledger.delivered)} of ${count(ledger.sent)} messages, p95 ${figure(p95)} ms`,
    shown: `p95 ${figure(p95)} ms, ${count(dropped)} dropped`,
    sheets: [
      latencySheet([
        ['due → HTTP answer', ledger.ack],
        ['due → push', ledger.e2e],
      ]),
    ],
    facts: [
      ['shape', `${count(sockets)} sockets, ${count(active)} written to, ${PER_SECOND} messages a second each`],
      ['failed', failuresOf(ledger)],
    ],
    checks: [
      {
        about: 'mail',
        isMet: lost === 0 && ledger.failedCount === 0,
        sentence: `Every message was taken and arrived (${count(lost)} did not).`,
      },
      { about: 'mail', isMet: ledger.twice + ledger.wrong === 0, sentence: 'None arrived twice or damaged.' },
      {
        about: 'mail',
        isMet: missing === 0 && dropped === 0,
        sentence: `No socket was dropped (${count(dropped)}).`,
      },
      latencyCheck(ledger.e2e, { percent: 95, maxMs: P95_MS_MAX, of: 'messages' }),
      generatorCheck(share),
    ],
    graphs: [graphOf(ledger)],
    figures: {
      sockets,
      sent: ledger.sent,
      delivered: ledger.delivered,
      dropped,
      ackMsP95: ledger.ack.at(95),
      e2eMsP50: ledger.e2e.at(50),
      e2eMsP95: p95,
      e2eMsP99: ledger.e2e.at(99),
      generatorShare: share,
    },
  }
}
