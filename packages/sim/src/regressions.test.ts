/** Seeds that once broke a promise, each with its cause. */
import { expect, test } from 'vitest'
import { runSeed } from './world.ts'

/**
 * A cut peer dialled again while the opening of its former session was still on its way to the database. That opening
 * was applied last and named no epoch, so the peer's dead connection superseded its live one, and the SDK treats
 * `superseded` as final. The mutant "an opening ignores the epoch" shows that the simulator would still detect it.
 */
test.each([9, 14, 56, 100, 129, 132, 155, 168, 169, 187])(
  'a peer is not stopped permanently by the late opening of its own former session (seed %i)',
  (seed) => {
    expect(runSeed(seed).violation).toBeNull()
  },
)

/**
 * Leases on insert continue for other senders while a claim is in flight. The claim's result arrived before that of a
 * commit with older envelopes of the same sender, leased on insert (181, 258); or it contained older ones than that
 * commit (1520195626).
 */
test.each([181, 258, 1_520_195_626])('a claim and a lease on insert keep the order of one sender (seed %i)', (seed) => {
  expect(runSeed(seed).violation).toBeNull()
})

/**
 * A message sealed to a box key that its recipient did not know was retried after ten seconds. Meanwhile a later
 * message of the same lane made the recipient learn the key, and was delivered first; its stream was new, so no gap was
 * detected.
 */
test.each([2_000_139, 2_001_609, 2_002_817])(
  'a lane keeps its order around a rotation of box keys (seed %i)',
  (seed) => {
    expect(runSeed(seed).violation).toBeNull()
  },
)

/**
 * A refused message left a gap in its stream, so the SDK held what followed in that stream. The sender had started a
 * new stream in the same lane, whose messages were delivered first.
 */
test('a message of a new stream does not overtake a held one of its lane (seed 722933135)', () => {
  expect(runSeed(722_933_135).violation).toBeNull()
})

/**
 * Messages that waited for their sender's keys were dropped when a group was loaded meanwhile for another message of
 * that sender.
 */
test.each([2_005_944, 2_006_051])(
  'messages that wait for keys are not dropped before the keys arrive (seed %i)',
  (seed) => {
    expect(runSeed(seed).violation).toBeNull()
  },
)

/**
 * A message that did not open yet was returned for ten seconds, and the session ended. The pause continued in the next
 * session, but the SDK had forgotten it, and delivered the following messages.
 */
test('a retried message is waited for in the next session, too (seed 2005944)', () => {
  expect(runSeed(2_005_944).violation).toBeNull()
})

/** Its settle was lost with the database, and was repeated only after it had left. */
test('a member that left shortly after an outage may have settled what is leased to it (seed 1312741409)', () => {
  expect(runSeed(1_312_741_409).violation).toBeNull()
})

/** Its shard crashed during a claim for it, so nothing could release what that claim leased. */
test('a shard that crashes after a member left releases nothing (seed 1100003228)', () => {
  expect(runSeed(1_100_003_228).violation).toBeNull()
})

/**
 * An outage lost its reject, which is not repeated: the delivery stays leased until its lease expires, even if the
 * member leaves.
 */
test('a member may leave seconds after its reject was lost (seed 722934867)', () => {
  expect(runSeed(722_934_867).violation).toBeNull()
})

/** Its shard received the newest consent when the recipient returned, and knew more than the oracle. */
test('a peer that is allowed again can send (seed 1312744220)', () => {
  expect(runSeed(1_312_744_220).violation).toBeNull()
})

/**
 * Two had expired when others arrived, and one of them became valid again when the clock was set back: still two gaps.
 */
test('a gap counts even if the missing message arrives late (seed 1312748792)', () => {
  expect(runSeed(1_312_748_792).violation).toBeNull()
})
