/** Seeds that once broke a promise, each with what was wrong. */
import { expect, test } from 'vitest'
import { runSeed } from './world.ts'

/**
 * A cut peer dialled again while the opening of its former session was still on its way to the database. That one was
 * applied last and named no epoch: the peer's own dead connection superseded its live one, and the SDK takes
 * `superseded` for final. The mutant "an opening looks at no epoch" shows that it would still be seen.
 */
test.each([9, 14, 56, 100, 129, 132, 155, 168, 169, 187])(
  'a peer is not ended for good by the late opening of its own former session (seed %i)',
  (seed) => {
    expect(runSeed(seed).violation).toBeNull()
  },
)

/**
 * Birth leases go on for other senders while a claim is in flight. Its answer came before that of a commit with older
 * envelopes of the same sender, born leased (181, 258); or it brought older ones than that commit had (1520195626).
 */
test.each([181, 258, 1_520_195_626])('a claim and a birth lease keep the order of one sender (seed %i)', (seed) => {
  expect(runSeed(seed).violation).toBeNull()
})

/**
 * A message sealed with a box key that its recipient did not know was put off for ten seconds. The key was learned
 * meanwhile, for a later message of the same lane, which was handed out first; its stream was new, so no gap was seen.
 */
test.each([2_000_139, 2_001_609, 2_002_817])('a lane keeps its order around a turn of box keys (seed %i)', (seed) => {
  expect(runSeed(seed).violation).toBeNull()
})

/**
 * A message was refused and left a hole in its stream, so the SDK held what followed it in that stream. The sender had
 * begun a new stream in the same lane, whose messages were handed out first.
 */
test('a message of a new stream does not overtake a held one of its lane (seed 722933135)', () => {
  expect(runSeed(722_933_135).violation).toBeNull()
})

/** What waited for its sender's keys was thrown away when a group was read meanwhile, for another message of that sender. */
test.each([2_005_944, 2_006_051])('what waits for keys is not thrown away before they come (seed %i)', (seed) => {
  expect(runSeed(seed).violation).toBeNull()
})

/**
 * A message was given back for ten seconds, since it could not be opened yet, and the session ended. The pause held in the
 * next session, too, but the SDK had forgotten it, and handed out what came behind.
 */
test('what is put off is waited for in the next session, too (seed 2005944)', () => {
  expect(runSeed(2_005_944).violation).toBeNull()
})

/** Its settle was lost with the database, and asked again only after it had left. */
test('a member that left shortly after an outage may have settled what is leased to it (seed 1312741409)', () => {
  expect(runSeed(1_312_741_409).violation).toBeNull()
})

/** Its shard crashed while a claim for it was under way, so nobody could give back what that claim leased. */
test('a shard that crashes behind a member that left gives nothing back (seed 1100003228)', () => {
  expect(runSeed(1_100_003_228).violation).toBeNull()
})

/** An outage took its reject, which is not repeated: the delivery stays leased until its lease lapses, also when it leaves. */
test('a member may leave seconds after its reject was lost (seed 722934867)', () => {
  expect(runSeed(722_934_867).violation).toBeNull()
})

/** Its shard heard of the newest consent when the recipient came back, and knew better than the oracle. */
test('whoever is welcome again may write (seed 1312744220)', () => {
  expect(runSeed(1_312_744_220).violation).toBeNull()
})

/** Two were over when others came, and one of them was not any more when the clock was set back: two gaps all the same. */
test('a gap counts, also when what was missing comes late (seed 1312748792)', () => {
  expect(runSeed(1_312_748_792).violation).toBeNull()
})
