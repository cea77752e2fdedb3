import { ready } from '@sealpost/identity'
import { beforeAll, expect, test } from 'vitest'
import { placeOf } from '../mutants/test/planted-bugs.ts'
import { runSenderKeySeed } from './sender-key-world.ts'
import { senderKeyBugs } from './test/sender-key-bugs.ts'

beforeAll(ready)

const SEEDS = 100

/** Events that must happen in some seed; otherwise, the run does not test them. */
const MARKS = [
  '20 days',
  'a chain ended before a recipient got it',
  'code: app_rejected',
  'code: sender_key_gone',
  'code: sender_key_unknown',
  'code: settled',
  'crash after a write',
  'crash before a write',
  'departed',
  'departure: messages sent',
  'gone with the store',
  'joined',
  'lost its store',
  'news: ratchet_reset',
  'redriven',
  'reordered',
  'restored',
  'theft',
  'theft: healed',
  'theft: judged',
  'two processes',
]

test(`with seeds 1 to ${SEEDS}, no group loses a message silently, repeats a key or gives in to a thief`, () => {
  const seen = new Set<string>()
  const broken: string[] = []
  for (let seed = 1; seed <= SEEDS; seed++) {
    const { violation, marks } = runSenderKeySeed(seed)
    if (violation !== null) broken.push(`seed ${seed}: ${violation}`)
    for (const name of marks.keys()) seen.add(name)
  }
  expect(broken).toEqual([])
  expect(MARKS.filter((name) => !seen.has(name))).toEqual([])
})

test('a seed is one world of groups: two runs are identical', () => {
  for (const seed of [16, 44]) expect(runSenderKeySeed(seed)).toEqual(runSenderKeySeed(seed))
})

test('the text that each planted bug of sender keys edits occurs once', () => {
  for (const bug of senderKeyBugs) expect(placeOf(bug).text).toContain(bug.from)
})
