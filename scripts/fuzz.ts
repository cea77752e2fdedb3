/**
 * Runs the fuzzers: `bun scripts/fuzz.ts --inputs 10000000 --seed 7`. Passes this number of inputs to the frame
 * decoders, and a hundredth to each other parser. Exits with 1 at the first input that breaks a rule.
 */
import { ready } from '@sealpost/identity'
import { fuzzIdentity } from '@sealpost/identity/testing'
import { fuzz } from '@sealpost/protocol/testing'
import { fuzzPeer } from '@sealpost/sdk/testing'
import { Command, InvalidArgumentError } from 'commander'

const SEED_MAX = 2 ** 31
const FRAMES_FOR_EACH_OTHER = 100
/** The number of inputs per round of all fuzzers, so that each has its turn early. */
const ROUND = 100_000

const options = new Command('fuzz')
  .description('Feed hostile inputs to every parser of external data.')
  .option('--inputs <n>', 'the number of inputs for the frame decoders', wholeNumber, 1_000_000)
  .option('--seed <n>', 'the seed of the first round; each further round uses the next seed', wholeNumber)
  .parse()
  .opts<{ inputs: number; seed?: number }>()

const first = options.seed ?? Math.floor(Math.random() * SEED_MAX)
const totals = new Map<string, { inputs: number; accepted: number }>()
const startedAtMs = performance.now()
await ready()
try {
  for (let done = 0; done < options.inputs; done += ROUND)
    round(first + done / ROUND, Math.min(ROUND, options.inputs - done))
  for (const [name, { inputs, accepted }] of totals) console.log(`${name}: ${inputs} inputs, ${accepted} accepted`)
  console.log(`seed ${first}: no parser threw; ${Math.round((performance.now() - startedAtMs) / 1000)} s`)
} catch (error) {
  console.error(error)
  process.exitCode = 1
}

function round(seed: number, inputs: number): void {
  const others = Math.max(1, Math.floor(inputs / FRAMES_FOR_EACH_OTHER))
  add('frames', inputs, fuzz({ seed, inputs }).accepted)
  for (const [name, { accepted }] of Object.entries(fuzzIdentity({ seed, inputs: others }))) add(name, others, accepted)
  const { delivered } = fuzzPeer({ seed, inputs: others })
  add('events of a peer', others, delivered)
}

function add(name: string, inputs: number, accepted: number): void {
  const so = totals.get(name) ?? { inputs: 0, accepted: 0 }
  totals.set(name, { inputs: so.inputs + inputs, accepted: so.accepted + accepted })
}

function wholeNumber(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError('Use a whole number.')
  return Number(text)
}
