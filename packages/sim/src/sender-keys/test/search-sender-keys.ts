/** Prints the first violation of these worlds of groups: `bun search-sender-keys.ts FIRST-SEED SEEDS`. */
import { ready } from '@sealpost/identity'
import { printFirstViolation } from '../../mutants/test/first-violation.ts'
import { runSenderKeySeed } from '../sender-key-world.ts'

await ready()
printFirstViolation(runSenderKeySeed)
