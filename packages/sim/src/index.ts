/** The simulator: the real driver, engine and SDK in a world from a seed, with an oracle that watches. */
export { type RunOutcome, realParts, runSeed, type WorldParts } from './world.ts'
