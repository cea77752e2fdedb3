import { expect, test } from 'vitest'
import { runSeed } from '../world.ts'
import { type Mutant, mutants } from './mutants.ts'

/** The first few seeds find most bugs; the rarest takes about a hundred. */
const SEEDS = 300

test.each(mutants)('is found: $name', (mutant) => {
  expect(firstViolation(mutant)).toMatch(mutant.breaks)
})

function firstViolation({ parts, firstSeed = 1 }: Mutant): string | null {
  for (let seed = firstSeed; seed < firstSeed + SEEDS; seed++) {
    const { violation } = runSeed(seed, parts)
    if (violation !== null) return violation
  }
  return null
}
