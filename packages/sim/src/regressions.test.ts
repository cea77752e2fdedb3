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
