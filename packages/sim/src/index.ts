/** The simulator: the real driver, engine and SDK in a seeded world, with an oracle. */
export { type RunOutcome, runSeed } from './world.ts'
