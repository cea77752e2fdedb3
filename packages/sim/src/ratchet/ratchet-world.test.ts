import { ready } from '@sealpost/identity'
import { beforeAll, expect, test } from 'vitest'
import { placeOf } from '../mutants/test/planted-bugs.ts'
import { runRatchetSeed } from './ratchet-world.ts'
import { ratchetBugs } from './test/ratchet-bugs.ts'

beforeAll(ready)

const SEEDS = 250

/** Events that must happen in some seed; otherwise, the run does not test them. */
const MARKS = [
  '2 days',
  '20 days',
  '80 days',
  'code: app_rejected',
  'code: prekey_gone',
  'code: ratchet_key_gone',
  'code: ratchet_reset',
  'code: settled',
  'crash after a write',
  'crash before a write',
  'forged: a copy opened',
  'forged: does_not_open',
  'gone with the store',
  'lost its store',
  'news: ratchet_agreed',
  'news: ratchet_last_resort',
  'news: ratchet_peer_reset',
  'news: ratchet_reset',
  'redriven',
  'reordered',
  'restored',
  'theft',
  'theft: a later message is safe',
  'theft: a later message is not safe yet',
  'theft: healed',
  'two processes',
]

test(`with seeds 1 to ${SEEDS}, no world loses a message silently, repeats a key or gives in to a thief`, () => {
  const seen = new Set<string>()
  const broken: string[] = []
  for (let seed = 1; seed <= SEEDS; seed++) {
    const { violation, marks } = runRatchetSeed(seed)
    if (violation !== null) broken.push(`seed ${seed}: ${violation}`)
    for (const name of marks.keys()) seen.add(name)
  }
  expect(broken).toEqual([])
  expect(MARKS.filter((name) => !seen.has(name))).toEqual([])
})

test('a seed is one world of ratchets: two runs are identical', () => {
  for (const seed of [16, 44]) expect(runRatchetSeed(seed)).toEqual(runRatchetSeed(seed))
})

test('the text that each planted bug of ratchets edits occurs once', () => {
  for (const bug of ratchetBugs) expect(placeOf(bug).text).toContain(bug.from)
})
