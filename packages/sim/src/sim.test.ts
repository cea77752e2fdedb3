import { expect, test } from 'vitest'
import { runSeed } from './world.ts'

const SEEDS = 300

/** What must have happened somewhere among the seeds, or the run has tested nothing. */
const MARKS = [
  'ack: duplicate',
  'birth lease: given',
  'broadcast',
  'birth lease: refused',
  'careful commit: duplicate',
  'careful commit: stored',
  'claim: applied late',
  'claim: locked',
  'claim: stale',
  'clock jump',
  'closed: heartbeat_missed',
  'closed: restarting',
  'closed: slow_consumer',
  'closed: superseded',
  'closed: try_later',
  'commit: answer lost',
  'commit: applied late',
  'commit: request lost',
  'crash',
  'cut',
  'database: away',
  'do not disturb',
  'fence: new epoch',
  'fence: served elsewhere',
  'handler extends',
  'handler rejects',
  'handler threw',
  'hint: doubled',
  'hint: lost',
  'nack: busy',
  'nack: out_of_sequence',
  'nack: rate_limited',
  'nack: unavailable',
  'open: applied late',
  'open: somebody was faster',
  'receipt: pushed',
  'receipt: rejected',
  'receipt: settled',
  'redelivery: another epoch',
  'redelivery: lapsed',
  'redelivery: put off',
  'restart',
  'send: buffered',
  'send: dropped',
  'takeover',
]

test(`no seed from 1 to ${SEEDS} breaks a promise, and between them every fault happens`, () => {
  const seen = new Set<string>()
  const broken: string[] = []
  for (let seed = 1; seed <= SEEDS; seed++) {
    const { violation, marks } = runSeed(seed)
    if (violation !== null) broken.push(`seed ${seed}: ${violation}`)
    for (const name of marks.keys()) seen.add(name)
  }
  expect(broken).toEqual([])
  expect(MARKS.filter((name) => !seen.has(name))).toEqual([])
})

test('a seed is one world: run twice, the same happens', () => {
  for (const seed of [3, 44, 100]) expect(runSeed(seed)).toEqual(runSeed(seed))
})
