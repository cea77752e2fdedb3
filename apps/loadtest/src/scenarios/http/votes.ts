/**
 * This scenario tests idempotent sends: every vote is sent twice concurrently under one id, and must be stored once.
 */

import type { Teardown } from '@sealpost/harness/programs/teardown'
import { Latencies } from '@sealpost/harness/report/latencies'
import { count, figure } from '@sealpost/harness/report/text'
import { clockMs } from '@sealpost/sdk'
import type { RunContext } from '../../run/run.ts'
import {
  Effort,
  type Findings,
  generatorCheck,
  latencySheet,
  mailCheck,
  type Scenario,
  sizeOf,
  spectrumGraph,
} from '../scenario.ts'
import { HttpStage, type Ledger, soundCheck } from './stage.ts'

export const votes: Scenario = {
  name: 'votes',
  summary: '100 peers × 40 idempotent sends, every one sent twice: each is stored once',
  bar: 'each stored once, 0 errors',
  reported: '3,842 of 3,842',
  run,
}

const VOTES_EACH = 40
const LATE_MS = 15_000

async function run(context: RunContext, teardown: Teardown): Promise<Findings> {
  const { target, options, display } = context
  const each = options.asked.messages ?? VOTES_EACH
  const { peers } = sizeOf(context, { peers: 100, seconds: 0 }, { peers: 50, seconds: 0 })
  const stage = await HttpStage.open(context, { listeners: 1, senders: peers }, teardown)
  await stage.exchange(Array.from({ length: peers }, (_, i) => [i, 0]))
  display.step(`${peers} peers vote ${each} times each`)
  const { ledger, startMs } = stage.begin()
  const effort = new Effort()
  const bothMs = new Latencies()
  let known = 0
  const vote = async (peer: number): Promise<void> => {
    const calledAtMs = clockMs()
    const number = ledger.due(calledAtMs)
    const item = stage.seal(peer, 0, number)
    const post = () => stage.senders[peer]!.postWithRetries(item, stage.retries)
    const outcomes = await Promise.all([post(), post()])
    bothMs.note(clockMs() - calledAtMs)
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
  return findingsOf(ledger, { bothMs, known, seconds, retries: stage.retries.retries, share: effort.share })
}

interface VoteResult {
  /** The time from a vote until both replies. */
  readonly bothMs: Latencies
  /** The number of duplicates reported. */
  readonly known: number
  readonly seconds: number
  /** The number of repeated requests. */
  readonly retries: number
  readonly share: number
}

function findingsOf(ledger: Ledger, { bothMs, known, seconds, retries, share }: VoteResult): Findings {
  const { acked, sent, delivered, failedCount } = ledger
  const isOnce = acked === sent && known === sent
  const replies = `${count(acked)} stored, ${count(known)} recognized as resends, ${count(failedCount)} failed`
  const repeated = "requests, which were repeated after the broker's retry-after; all peers share one address"
  return {
    headline: `${count(delivered)} of ${count(sent)} votes counted, each sent twice`,
    shown: `${count(acked)} of ${count(sent)} stored once, ${count(failedCount)} errors`,
    sheets: [
      latencySheet([
        ['both replies', bothMs],
        ['vote → counted', ledger.e2e],
      ]),
    ],
    facts: [
      ['answers', `${replies}, in ${figure(seconds)} s`],
      ['delayed', `${count(retries)} ${repeated}`],
    ],
    checks: [
      mailCheck(isOnce, 'Of the two sends of each vote, one was stored and the other was recognized as a resend.'),
      mailCheck(delivered === sent, 'Every vote arrived.'),
      soundCheck(ledger.isSound),
      mailCheck(failedCount === 0, 'No send failed.'),
      generatorCheck(share),
    ],
    graphs: [
      spectrumGraph([
        ['both replies', bothMs.spectrum],
        ['counted', ledger.e2e.spectrum],
      ]),
    ],
    figures: {
      ...{ votes: sent, stored: acked, known, failed: failedCount, delivered, putOffs: retries },
      ...{ bothAnswersMsP95: bothMs.at(95), countedMsP95: ledger.e2e.at(95), generatorShare: share },
    },
  }
}
