import { ready } from '@sealpost/identity'
import { beforeAll, expect, test } from 'vitest'
import { ATTACKS, runHostileSeed } from './hostile-world.ts'

beforeAll(() => ready())

test.each(ATTACKS.map((attack, seed) => [attack, seed] as const))(
  'in worlds with the attack "%s", the victim reports it within one message, and nothing else',
  async (_, first) => {
    const seeds = [0, 1, 2].map((round) => first + round * ATTACKS.length)
    for (const { seed, violation } of await Promise.all(seeds.map(runHostileSeed)))
      expect(violation, `seed ${seed}`).toBeNull()
  },
)
