/** Prints the first violation of these worlds of ratchets: `bun search-ratchet.ts FIRST-SEED SEEDS`. */
import { ready } from '@sealpost/identity'
import { printFirstViolation } from '../../mutants/test/first-violation.ts'
import { runRatchetSeed } from '../ratchet-world.ts'

await ready()
printFirstViolation(runRatchetSeed)
