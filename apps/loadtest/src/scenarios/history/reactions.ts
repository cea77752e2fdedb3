/** Members react to messages whose reactions become more and more, while others keep the counts of each message. */

import type { MeshMembers } from '@sealpost/harness/members/mesh'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, figure } from '@sealpost/harness/report/text'
import { clockMs } from '@sealpost/sdk'
import type { Plan } from '../../generators/plan.ts'
import { ALONE } from '../../generators/spread.ts'
import { newMeshes } from '../../run/run.ts'
import { Effort, generatorCheck } from '../effort.ts'
import { latencySheet, spectrumGraph } from '../latency.ts'
import { paced } from '../paced.ts'
import { latencyCheck } from '../percentiles.ts'
import { type Findings, type Graph, type Scenario, type ScenarioSetup, sizeOf } from '../scenario.ts'
import { Conversation, type Look } from './conversation.ts'

const WRITE_P95_MS_MAX = 500
const COUNTED_P95_MS_MAX = 3_000
const AGGREGATE_P95_MS_MAX = 1
/** A group has 256 members at most. */
const WRITERS_MAX = 240
/** Each of them verifies every reaction. */
const LIVE = 3
const LOOKS = 5
const LATE_MS = 15_000

export const reactions: Scenario = {
  name: 'reactions',
  summary:
    '100 peers react to 60 messages, one reaction a second each, until every message has 100; 3 others count them',
  bar: `write p95 ≤ ${WRITE_P95_MS_MAX} ms, counted p95 ≤ ${count(COUNTED_P95_MS_MAX)} ms, 0 errors`,
  reported: 'write p95 2,340 ms, read p95 12,680 ms',
  run,
}

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { target, options, display } = setup
  const { peers, seconds } = sizeOf(setup, { peers: 100, seconds: 60 }, { peers: 100, seconds: 5 })
  const writers = Math.min(peers, WRITERS_MAX)
  const base = { payloadBytes: options.payloadBytes, seed: options.seed, isOneWay: false, spread: ALONE }
  const plan: Plan = { ...base, peers: writers + LIVE + 1, total: 0, rate: null }
  const [mesh] = (await newMeshes({ plan, target }, teardown)) as [MeshMembers]
  display.step(`${count(plan.peers)} members come to a conversation`)
  const place = { ...target.shards[0]!, meshId: mesh.meshId }
  const opening = Conversation.open(place, mesh, { writers, messages: Math.max(1, Math.round(seconds)) })
  const conversation = await Promise.race([opening, target.failed])
  display.step(`${count(writers)} react for ${count(seconds)} s`)
  const effort = new Effort()
  await Promise.race([writeAndLook(conversation, { writers, seconds }), target.failed])
  const { share } = effort
  const found = await conversation.count()
  await conversation.close()
  return findingsOf(conversation, { found, share, seconds })
}

/** In parts with a look after each: a look verifies every reaction, in the program in which the others write. */
async function writeAndLook(
  conversation: Conversation,
  { writers, seconds }: { readonly writers: number; readonly seconds: number },
): Promise<void> {
  const total = Math.round(writers * seconds)
  for (let part = 0; part < LOOKS; part++) {
    const [first, end] = [part, part + 1].map((share) => Math.round((total * share) / LOOKS)) as [number, number]
    const beat = { startMs: clockMs(), seconds: (end - first) / writers }
    const writing = paced(
      { ...beat, perSecond: writers },
      (turn, dueAtMs) => void conversation.write(first + turn, dueAtMs),
    )
    const reading = paced({ ...beat, perSecond: 1 }, () => conversation.aggregate())
    await Promise.all([writing, reading])
    await conversation.settled(LATE_MS)
    conversation.aggregate()
    await conversation.look()
  }
}

interface Around {
  readonly found: number
  readonly share: number
  readonly seconds: number
}

function findingsOf(conversation: Conversation, { found, share, seconds }: Around): Findings {
  const { writes, counted, aggregates, errors, stored, uncounted, looks } = conversation
  const [writeP95, countedP95] = [writes.at(95), counted.at(95)]
  const last = looks.at(-1)!
  const microseconds = `${figure(last.aggregateMs * 1000)} µs`
  return {
    headline: `${count(stored / seconds)} reactions a second; the counts of a message with ${count(last.most)} take ${microseconds}`,
    shown: `write p95 ${figure(writeP95)} ms, counted p95 ${figure(countedP95)} ms, ${count(errors)} errors`,
    sheets: [
      latencySheet([
        ['due → stored', writes],
        ['due → counted by another member', counted],
        ['counts of one message', aggregates],
      ]),
      sheetOf(looks),
    ],
    facts: [
      [
        'aggregate',
        'counted by the members: the broker knows neither which message a reaction is of, nor what it says',
      ],
      ['from nothing', 'by a member that opens the reactions again, and by one that reads every event of the history'],
      ['found', `${count(found)} of ${count(stored)} by a member that opens them afterwards`],
    ],
    checks: [
      { about: 'mail', isMet: errors === 0, sentence: `No reaction was refused (${count(errors)}).` },
      {
        about: 'mail',
        isMet: found === stored && uncounted === 0,
        sentence: 'Every reaction that was stored is counted, as it came and by a member that opens them afterwards.',
      },
      latencyCheck(writes, { percent: 95, maxMs: WRITE_P95_MS_MAX, of: 'reactions, due → stored,' }),
      latencyCheck(counted, { percent: 95, maxMs: COUNTED_P95_MS_MAX, of: 'reactions, due → counted,' }),
      latencyCheck(aggregates, { percent: 95, maxMs: AGGREGATE_P95_MS_MAX, of: 'counts of one message' }),
      generatorCheck(share),
    ],
    graphs: [
      spectrumGraph([
        ['stored', writes.spectrum],
        ['counted', counted.spectrum],
      ]),
      graphOf(looks),
    ],
    figures: {
      ...{ updates: writes.count, errors, stored, found, uncounted },
      ...{ writeMsP50: writes.at(50), writeMsP95: writeP95, countedMsP50: counted.at(50), countedMsP95: countedP95 },
      aggregateMs: last.aggregateMs,
      openingMs: last.openingMs,
      historyMs: last.historyMs,
      generatorShare: share,
    },
  }
}

function sheetOf(looks: readonly Look[]) {
  const rows = looks.map(({ reactions: all, most, aggregateMs, openingMs, historyMs }) => [
    ...[count(all), count(most), figure(aggregateMs * 1000), figure(openingMs), figure(historyMs)],
  ])
  return { head: ['reactions', 'of one message', 'its counts µs', 'all from nothing ms', 'by the history ms'], rows }
}

function graphOf(looks: readonly Look[]): Graph {
  const line = (name: string, pick: (look: Look) => number) => ({
    ...{ name, points: looks.map((look) => [look.reactions, pick(look)] as const) },
  })
  return {
    title: 'Time of the counts against the reactions',
    x: 'reactions',
    y: 'ms',
    lines: [
      line('one message', ({ aggregateMs }) => aggregateMs),
      line('all from nothing', ({ openingMs }) => openingMs),
      line('by the history', ({ historyMs }) => historyMs),
    ],
  }
}
