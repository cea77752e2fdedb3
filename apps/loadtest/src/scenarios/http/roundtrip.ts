/**
 * This scenario measures the time from an HTTP request to the push on a WebSocket, while many idle sockets are open.
 */
import { atRate } from '@sealpost/harness/programs/pace'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, figure } from '@sealpost/harness/report/text'
import { IdlePeers } from '../../generators/idle-peers.ts'
import type { RunContext } from '../../run/run.ts'
import {
  Effort,
  type Findings,
  generatorCheck,
  latencyCheck,
  latencySheet,
  mailCheck,
  type Scenario,
  sizeOf,
} from '../scenario.ts'
import { failuresOf, HttpStage, type Ledger, soundCheck } from './stage.ts'

const ACTIVE = 50
/** The number of messages per second to each active peer. */
const PER_SECOND = 4
const P95_MS_MAX = 100
const LATE_MS = 10_000

export const roundtrip: Scenario = {
  name: 'roundtrip',
  summary: 'hold 2,000 sockets and write to 50 of them: HTTP send → WebSocket push',
  bar: `p95 ≤ ${P95_MS_MAX} ms, none disconnected`,
  reported: 'p95 1,758 ms',
  run,
}

async function run(context: RunContext, teardown: Teardown): Promise<Findings> {
  const { target, options, display } = context
  const { peers, seconds } = sizeOf(context, { peers: 2_000, seconds: 30 }, { peers: 300, seconds: 5 })
  const active = Math.min(ACTIVE, Math.ceil(peers / 2))
  const silent = peers - active
  const stage = await HttpStage.open(context, { listeners: active, senders: active, others: silent }, teardown)
  const { failed, shards } = target
  const { runtimeArgs } = options
  display.step(`connecting ${silent} silent peers`)
  const setup = { mesh: stage.others, broker: shards[0]!, programs: 1, runtimeArgs, failed }
  const idle = await IdlePeers.open(setup, teardown)
  await idle.grow(silent)
  await stage.exchange(Array.from({ length: active }, (_, i) => [i, i]))

  display.step(`sending for ${seconds} s`)
  const { ledger, startMs } = stage.begin()
  const effort = new Effort()
  const sending = atRate({ startMs, perSecond: PER_SECOND * active, until: seconds }, (turn, dueAtMs) =>
    stage.send(turn % active, turn % active, dueAtMs),
  )
  await Promise.race([sending, failed])
  await ledger.until(ledger.sent, LATE_MS)
  const { share } = effort
  const { online, dropped } = await idle.look()
  await idle.leave()
  const droppedAll = dropped + stage.listeners.dropped
  return findingsOf(ledger, { active, sockets: online + active, missing: silent - online, dropped: droppedAll, share })
}

interface Sockets {
  /** The number of peers that received messages. */
  readonly active: number
  readonly sockets: number
  /** The number of silent peers offline at the end. */
  readonly missing: number
  readonly dropped: number
  readonly share: number
}

function findingsOf(ledger: Ledger, { active, sockets, missing, dropped, share }: Sockets): Findings {
  const lost = ledger.sent - ledger.delivered
  const p95 = ledger.e2e.at(95)
  const isComplete = lost === 0 && ledger.failedCount === 0
  return {
    headline: `${count(ledger.delivered)} of ${count(ledger.sent)} messages, p95 ${figure(p95)} ms`,
    shown: `p95 ${figure(p95)} ms, ${count(dropped)} dropped`,
    sheets: [
      latencySheet([
        ['due → HTTP reply', ledger.ack],
        ['due → push', ledger.e2e],
      ]),
    ],
    facts: [
      ['shape', `${count(sockets)} sockets, ${count(active)} of them receive ${PER_SECOND} messages per second each`],
      ['failed', failuresOf(ledger)],
    ],
    checks: [
      mailCheck(isComplete, `Every message was accepted and arrived (${count(lost)} were lost).`),
      soundCheck(ledger.isSound),
      mailCheck(missing === 0 && dropped === 0, `No socket was disconnected (${count(dropped)}).`),
      latencyCheck(ledger.e2e, { percent: 95, maxMs: P95_MS_MAX, of: 'messages' }),
      generatorCheck(share),
    ],
    graphs: [ledger.graph],
    figures: {
      ...{ sockets, sent: ledger.sent, delivered: ledger.delivered, dropped, ackMsP95: ledger.ack.at(95) },
      ...{ e2eMsP50: ledger.e2e.at(50), e2eMsP95: p95, e2eMsP99: ledger.e2e.at(99), generatorShare: share },
    },
  }
}
