/** Idempotent sends: every vote is sent twice under one id, both at once, and must be stored once. */

import type { Teardown } from '@sealpost/harness/programs/teardown'
import { Latencies } from '@sealpost/harness/report/latencies'
import { count, figure } from '@sealpost/harness/report/text'
import { clockMs } from '@sealpost/sdk'
import { Effort, generatorCheck } from '../effort.ts'
import { latencySheet, spectrumGraph } from '../latency.ts'
import { type Findings, type Scenario, type ScenarioSetup, sizeOf } from '../scenario.ts'
import type { Ledger } from './ledger.ts'
import { HttpStage } from './stage.ts'

export const votes: Scenario = {
  name: 'votes',
  summary: '100 peers × 40 idempotent sends, every one sent twice: each is stored once',
  bar: 'each stored once, 0 errors',
  reported: '3,842 of 3,842',
  run,
}

const VOTES_EACH = 40
const LATE_MS = 15_000

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { target, options, display } = setup
  const each = options.asked.messages ?? VOTES_EACH
  const { peers } = sizeOf(setup, { peers: 100, seconds: 0 }, { peers: 50, seconds: 0 })
  const stage = await HttpStage.open(setup, { listeners: 1, senders: peers }, teardown)
  await stage.exchange(Array.from({ length: peers }, (_, i) => [i, 0]))
  display.step(`${peers} peers vote ${each} times each`)
  const { ledger, startMs } = stage.begin()
  const effort = new Effort()
  const again = new Latencies()
  let known = 0
  const vote = async (peer: number): Promise<void> => {
    const calledAtMs = clockMs()
    const number = ledger.due(calledAtMs)
    const item = stage.seal(peer, 0, number)
    const post = () => stage.senders[peer]!.postWithRetries(item, stage.putOffs)
    const outcomes = await Promise.all([post(), post()])
    again.note(clockMs() - calledAtMs)
    if (outcomes.includes('stored')) ledger.answered(number, clockMs())
    known += outcomes.filter((outcome) => outcome === 'duplicate').length
    for (const outcome of outcomes) if (outcome !== 'stored' && outcome !== 'duplicate') ledger.failed(outcome)
  }
  const voteAll = async (peer: number): Promise<void> => {
    for (let i = 0; i < each; i++) await vote(peer)
  }
  await Promise.race([Promise.all(stage.senders.map((_, peer) => voteAll(peer))), target.failed])
  const seconds = (clockMs() - startMs) / 1000
  await ledger.until(ledger.sent, LATE_MS)
  return findingsOf(ledger, { again, known, seconds, putOffs: stage.putOffs.retries, share: effort.share })
}

interface Voted {
  /** From a vote to both of its answers. */
  readonly again: Latencies
  /** The answers that said so. */
  readonly known: number
  readonly seconds: number
  /** Requests for tokens and sends that the broker put off, and that were repeated. */
  readonly putOffs: number
  readonly share: number
}

function findingsOf(ledger: Ledger, { again, known, seconds, putOffs, share }: Voted): Findings {
  const isOnce = ledger.acked === ledger.sent && known === ledger.sent
  return {
    headline: `${count(ledger.delivered)} of ${count(ledger.sent)} votes counted, each sent twice`,
    shown: `${count(ledger.acked)} of ${count(ledger.sent)} stored once, ${count(ledger.failedCount)} errors`,
    sheets: [
      latencySheet([
        ['both answers', again],
        ['vote → counted', ledger.e2e],
      ]),
    ],
    facts: [
      [
        'answers',
        `${count(ledger.acked)} stored, ${count(known)} known from before, ${count(ledger.failedCount)} failed, in ${figure(seconds)} s`,
      ],
      [
        'put off',
        `${count(putOffs)} requests, which were repeated after the time that the broker named; all peers share one address`,
      ],
    ],
    checks: [
      {
        about: 'mail',
        isMet: isOnce,
        sentence: 'Of the two sends of each vote one was stored, and the other was known.',
      },
      { about: 'mail', isMet: ledger.delivered === ledger.sent, sentence: 'Every vote arrived.' },
      { about: 'mail', isMet: ledger.twice + ledger.wrong === 0, sentence: 'None arrived twice or damaged.' },
      { about: 'mail', isMet: ledger.failedCount === 0, sentence: 'No send failed.' },
      generatorCheck(share),
    ],
    graphs: [
      spectrumGraph([
        ['both answers', again.spectrum],
        ['counted', ledger.e2e.spectrum],
      ]),
    ],
    figures: {
      votes: ledger.sent,
      stored: ledger.acked,
      known,
      failed: ledger.failedCount,
      delivered: ledger.delivered,
      putOffs,
      bothAnswersMsP95: again.at(95),
      countedMsP95: ledger.e2e.at(95),
      generatorShare: share,
    },
  }
}
