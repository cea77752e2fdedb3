import { expect, test } from 'vitest'
import { placeOf, plantedBugs } from './mutants/test/planted-bugs.ts'
import { runSeed } from './world.ts'

const SEEDS = 300
/** The time limit of a test that takes 15 s of CPU, on a slow machine. */
const SLOW = { timeout: 600_000 }

const STATES = [
  'receiver: wait for a key',
  'receiver: wait for an earlier one',
  'connection: connecting',
  'connection: greeting',
  'connection: live',
  'connection: proving',
  'connection: waiting',
  'credit lane: waits in a claim',
  'credit lane: waits in the queue',
  'credit lane: waits no',
  'credit: a claim of anything',
  'credit: a claim of known ids',
  'credit: a lease lapsed',
  'credit: a lease was extended',
  'credit: insert leases',
  'credit: insert leases and plain ones of one sender',
  'credit: insert leases beside a claim',
  'credit: congested',
  'credit: fenced',
  'credit: may have more',
  'credit: no room',
  'credit: scanned to the end',
  'live: bars a lane',
  'live: has parked deliveries',
  'live: looks up recipients',
  'live: not to be disturbed',
  'outbox entry: atRest',
  'outbox entry: atRest, may be stored',
  'outbox entry: inFlight',
  'outbox entry: inFlight, may be stored',
  'outbox entry: keeping',
  'outbox entry: sealed',
  'outbox: a lane is paused',
  'outbox: the broker leaves',
  'session: greeted',
  'session: live',
  'session: opening',
  'session: proving',
]

/** Events that must happen in some seed; otherwise, the run does not test them. */
const MARKS = [
  'ack: duplicate',
  'insert lease: given',
  'broadcast',
  'insert lease: refused',
  'box key: done',
  'checked commit: duplicate',
  'checked commit: stored',
  'claim: applied late',
  'claim: locked',
  'claim: short of what it picked',
  'claim: stale',
  'clock jump',
  'closed normally with untouched deliveries',
  'closed: heartbeat_missed',
  'closed: revoked',
  'closed: restarting',
  'closed: slow_consumer',
  'closed: superseded',
  'closed: try_later',
  'commit: reply lost',
  'commit: applied late',
  'commit: request lost',
  'consent: blocked',
  'consent: forgotten',
  'crash',
  'cut',
  'database: away',
  'death: expired',
  'death: strikes',
  'do not disturb',
  'fence: new epoch',
  'fence: served elsewhere',
  'gap: of what died',
  'handler extends',
  'handler rejects',
  'handler threw',
  'hint: doubled',
  'hint: lost',
  'nack: busy',
  'news: lost',
  'news: superseded',
  'nack: out_of_sequence',
  'nack: rate_limited',
  'nack: unavailable',
  'open: applied late',
  'open: overtaken',
  'receipt: expired',
  'receipt: pushed',
  'receipt: rejected',
  'receipt: settled',
  'redelivery: another epoch',
  'redelivery: lapsed',
  'redelivery: put off',
  'refused: not_allowed',
  'restart',
  'revocation: committed',
  'sdk: key_changed',
  'send: buffered',
  'send: dropped',
  'takeover',
  'reported lost: expired',
]

test(
  `with seeds 1 to ${SEEDS}, no world breaks a promise, and together the worlds exercise every fault and every state`,
  SLOW,
  () => {
    const seen = new Set<string>()
    const broken: string[] = []
    for (let seed = 1; seed <= SEEDS; seed++) {
      const { violation, marks } = runSeed(seed)
      if (violation !== null) broken.push(`seed ${seed}: ${violation}`)
      for (const name of marks.keys()) seen.add(name)
    }
    expect(broken).toEqual([])
    expect([...MARKS, ...STATES].filter((name) => !seen.has(name))).toEqual([])
  },
)

test('a seed is one world: two runs are identical', () => {
  for (const seed of [3, 44, 100]) expect(runSeed(seed)).toEqual(runSeed(seed))
})

test('the text that each planted bug edits occurs once', () => {
  for (const bug of plantedBugs) expect(placeOf(bug).text).toContain(bug.from)
})
