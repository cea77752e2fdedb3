/** Replays seeds that once broke a promise, each with its cause. */
import { expect, test } from 'vitest'
import { runSeed } from './world.ts'

const SEEDS: Readonly<Record<string, readonly number[]>> = {
  /**
   * A disconnected peer dialled again while the statement that opens its former session had not reached the database
   * yet. That statement was applied last and contained no epoch, so the peer's dead connection superseded its live one,
   * and the SDK treats `superseded` as final. The mutant "an opening ignores the epoch" shows that the simulator still
   * detects this.
   */
  'a peer is not stopped permanently by the late opening of its own former session': [
    9, 14, 56, 100, 129, 132, 155, 168, 169, 187,
  ],
  /**
   * Leases on insert continue for other senders while a claim is in flight. The claim's result arrived before the
   * result of a commit that leased older envelopes from the same sender on insert (181, 258), or it contained older
   * envelopes than that commit (1520195626).
   */
  "a claim and a lease on insert preserve the order of one sender's messages": [181, 258, 1_520_195_626],
  /**
   * A message sealed to a box key that its recipient did not know was retried after ten seconds. In the meantime, a
   * later message in the same lane made the recipient learn the key, and was delivered first. Its stream was new, so no
   * gap was detected.
   */
  'a lane keeps its order across a rotation of box keys': [2_000_139, 2_001_609, 2_002_817],
  /**
   * A refused message left a gap in its stream, so the SDK held the following messages of that stream. The sender had
   * started a new stream in the same lane, and its messages were delivered first.
   */
  'a message in a new stream does not overtake a held message in its lane': [722_933_135],
  /** Waiting messages were dropped if a group was loaded for another message from the same sender in the meantime. */
  'messages that wait for keys are not dropped before the keys arrive': [2_005_944, 2_006_051],
  /**
   * A message that could not be opened yet was returned for ten seconds, and the session ended. The pause continued in
   * the next session, but the SDK had forgotten the message, and delivered the following ones.
   */
  'a retried message is waited for in the next session, too': [2_005_944],
  /** The settle was lost in the outage and was repeated only after the peer had left. */
  'a member that left shortly after an outage may have settled what is leased to it': [1_312_741_409],
  /** The shard crashed during a claim for the peer, so nothing could release the deliveries that the claim leased. */
  'a shard that crashes after a member left releases nothing': [1_100_003_228],
  /** The reject is not repeated, so the lease lasts until it expires, even if the member leaves. */
  'a member may leave seconds after its reject was lost': [722_934_867],
  /** The shard received the newest consent when the recipient returned, so it knew more than the oracle. */
  'a peer that is allowed again can send': [1_312_744_220],
  /** Two expired messages left gaps, and one became valid again when the clock was set back: still two gaps. */
  'a gap counts even if the missing message arrives late': [1_312_748_792],
  /**
   * A cut connection and a clock jump made a lease lapse. That is one failed attempt, which was enough in that world.
   */
  'a receipt may end by its failed attempts': [1_791_537_641],
  /** Leases on insert in a commit that the simulator held back used up the session's credit. */
  'a returned delivery may wait for a commit that is held back': [501_991],
}

const worlds = Object.entries(SEEDS).flatMap(([claim, seeds]) => seeds.map((seed) => ({ claim, seed })))

test.each(worlds)('$claim (seed $seed)', ({ seed }) => {
  expect(runSeed(seed).violation).toBeNull()
})
