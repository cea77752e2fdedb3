/** Many add small updates to one conversation while others read its pages. */
import { clockMs } from '@sealpost/sdk'
import type { Teardown } from '../../lib/teardown.ts'
import { Conversation, PAGE } from '../conversation.ts'
import type { Plan } from '../plan.ts'
import { newMeshes } from '../run.ts'
import type { Mesh } from '../seed.ts'
import { ALONE } from '../spread.ts'
import { count, figure } from '../text.ts'
import { Effort, generatorCheck } from './effort.ts'
import { latencySheet, spectrumGraph } from './latency.ts'
import { paced } from './paced.ts'
import { latencyCheck } from './percentiles.ts'
import { type Findings, type Scenario, type ScenarioSetup, sizeOf } from './scenario.ts'

const WRITE_P95_MS_MAX = 500
const READ_P95_MS_MAX = 3000
/** A group has 256 members at most, and there is a reader for each two writers. */
const WRITERS_MAX = 160

export const reactions: Scenario = {
  name: 'reactions',
  summary: '100 peers add to one conversation, one update a second each, while 50 read a page a second',
  bar: `write p95 ≤ ${WRITE_P95_MS_MAX} ms, read p95 ≤ ${count(READ_P95_MS_MAX)} ms, 0 errors`,
  reported: 'write p95 2,340 ms, read p95 12,680 ms',
  run,
}

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { target, options, display } = setup
  const { peers, seconds } = sizeOf(setup, { peers: 100, seconds: 60 }, { peers: 100, seconds: 5 })
  const writers = Math.min(peers, WRITERS_MAX)
  const readers = Math.max(1, Math.round(writers / 2))
  const base = { payloadBytes: options.payloadBytes, seed: options.seed, isOneWay: false, spread: ALONE }
  const plan: Plan = { ...base, peers: writers + readers, total: 0, rate: null }
  const [mesh] = (await newMeshes({ plan, target, options }, teardown)) as [Mesh]
  display.step(`${count(writers + readers)} members come to a conversation`)
  const opening = Conversation.open({ ...target.shards[0]!, meshId: mesh.meshId }, mesh, { writers })
  const conversation = await Promise.race([opening, target.failed])
  display.step(`${count(writers)} write and ${count(readers)} read for ${count(seconds)} s`)
  const effort = new Effort()
  const beat = { startMs: clockMs(), seconds }
  const writing = paced({ ...beat, perSecond: writers }, (turn, dueAtMs) => conversation.write(turn, dueAtMs))
  const reading = paced({ ...beat, perSecond: readers }, (turn, dueAtMs) => conversation.read(turn, dueAtMs))
  await Promise.race([Promise.all([writing, reading]).then(() => conversation.settled()), target.failed])
  const { share } = effort
  const found = await conversation.count()
  await conversation.close()
  return findingsOf(conversation, { found, share, seconds })
}

function findingsOf(
  { writes, reads, errors, stored }: Conversation,
  { found, share, seconds }: { found: number; share: number; seconds: number },
): Findings {
  const [writeP95, readP95] = [writes.at(95), reads.at(95)]
  return {
    headline: `${count(writes.count / seconds)} updates and ${count(reads.count / seconds)} pages a second, ${count(errors)} errors`,
    shown: `write p95 ${figure(writeP95)} ms, read p95 ${figure(readP95)} ms, ${count(errors)} errors`,
    sheets: [
      latencySheet([
        ['due → stored', writes],
        ['due → page read', reads],
      ]),
    ],
    facts: [
      ['shape', `a page is the last ${PAGE} events, and is read as it comes; updates are sealed and signed`],
      ['found', `${count(found)} of ${count(stored)} by a member that opens the whole history afterwards`],
    ],
    checks: [
      {
        about: 'mail',
        isMet: errors === 0,
        sentence: `No update was refused, and every page came whole (${count(errors)} not).`,
      },
      {
        about: 'mail',
        isMet: found === stored,
        sentence: 'Every update that was stored is in the history, opens, and none is missing between.',
      },
      latencyCheck(writes, { percent: 95, maxMs: WRITE_P95_MS_MAX, of: 'updates' }),
      latencyCheck(reads, { percent: 95, maxMs: READ_P95_MS_MAX, of: 'pages' }),
      generatorCheck(share),
    ],
    graphs: [
      spectrumGraph([
        ['stored', writes.spectrum],
        ['page read', reads.spectrum],
      ]),
    ],
    figures: {
      updates: writes.count,
      pages: reads.count,
      errors,
      stored,
      found,
      writeMsP50: writes.at(50),
      writeMsP95: writeP95,
      readMsP50: reads.at(50),
      readMsP95: readP95,
      generatorShare: share,
    },
  }
}
