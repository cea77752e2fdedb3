/** Prints the first broken promise of these worlds: `bun search.ts FIRST-SEED SEEDS`. */
import { runSeed } from '../../world.ts'
import { printFirstViolation } from './first-violation.ts'

printFirstViolation(runSeed)
