/**
 * Runs the simulator: `bun scripts/sim.ts --seed 7 --verbose` replays one world. `--seeds 2000` runs many worlds, from
 * a random first seed unless `--from` sets it. Prints the first seed that breaks a promise, and exits with 1.
 * `--ratchets` runs worlds of two peers with ratchets instead, and `--sender-keys` worlds of groups.
 */
import { ready } from '@sealpost/identity'
import { type RunOutcome, runSeed } from '@sealpost/sim'
import { runRatchetSeed } from '@sealpost/sim/ratchets'
import { runSenderKeySeed } from '@sealpost/sim/sender-keys'
import { Command, InvalidArgumentError } from 'commander'

const SEED_MAX = 2 ** 31

const program = new Command('sim')
  .description('Run the real driver, engine and SDK in simulated worlds, each generated from a seed.')
  .option('--seed <n>', 'run only this seed', wholeNumber)
  .option('--seeds <n>', 'the number of seeds', wholeNumber, 500)
  .option('--from <n>', 'the first seed', wholeNumber)
  .option('--ratchets', 'simulate two peers with ratchets, instead of brokers')
  .option('--sender-keys', 'simulate a group with sender keys, instead of brokers')
  .option('--verbose', 'print the faults and marks of each world')
  .parse()

interface SimOptions {
  readonly seed?: number
  readonly seeds: number
  readonly from?: number
  readonly ratchets?: boolean
  readonly senderKeys?: boolean
  readonly verbose?: boolean
}

const options = program.opts<SimOptions>()
const first = options.seed ?? options.from ?? Math.floor(Math.random() * SEED_MAX)
const count = options.seed === undefined ? options.seeds : 1
const startedAtMs = performance.now()
const marks = new Map<string, number>()
let drainedInMs = 0

if (options.ratchets || options.senderKeys) {
  await ready()
  if (options.senderKeys) runKeyWorlds('--sender-keys', runSenderKeySeed)
  else runKeyWorlds('--ratchets', runRatchetSeed)
  process.exit()
}
for (let seed = first; seed < first + count; seed++) {
  const outcome = runSeed(seed)
  if (options.verbose) describe(outcome)
  if (outcome.violation !== null) fail(outcome)
  for (const [name, times] of outcome.marks) marks.set(name, (marks.get(name) ?? 0) + times)
  drainedInMs = Math.max(drainedInMs, outcome.drainedInMs)
}
const seconds = (performance.now() - startedAtMs) / 1000
console.log(`${count} worlds from seed ${first}, no broken promise; ${Math.round(count / seconds)} worlds/s`)
console.log(`longest from the last fault to an empty queue: ${Math.round(drainedInMs)} virtual ms`)
printMarks(marks)

function runKeyWorlds(option: string, run: typeof runRatchetSeed): void {
  for (let seed = first; seed < first + count; seed++) {
    const { violation, marks: of } = run(seed)
    if (violation !== null) {
      console.error(`seed ${seed}: ${violation}\nreplay it: bun scripts/sim.ts ${option} --seed ${seed} --verbose`)
      process.exit(1)
    }
    for (const [name, times] of of) marks.set(name, (marks.get(name) ?? 0) + times)
  }
  const seconds = (performance.now() - startedAtMs) / 1000
  console.log(`${count} worlds (${option}) from seed ${first}, no violation; ${Math.round(count / seconds)} worlds/s`)
  printMarks(marks)
}

function fail({ seed, violation }: RunOutcome): never {
  console.error(`seed ${seed}: ${violation}\nreplay it: bun scripts/sim.ts --seed ${seed} --verbose`)
  process.exit(1)
}

function describe({ seed, plan, marks: of, drainedInMs: ms }: RunOutcome): void {
  console.log(`seed ${seed}, drained in ${Math.round(ms)} virtual ms`)
  for (const [name, value] of Object.entries(plan))
    console.log(`  ${name}: ${typeof value === 'number' ? +value.toFixed(3) : value}`)
  printMarks(of)
}

function printMarks(of: ReadonlyMap<string, number>): void {
  for (const [name, times] of [...of].sort(([a], [b]) => (a < b ? -1 : 1))) console.log(`  ${name}: ${times}`)
}

function wholeNumber(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError('Use a whole number.')
  return Number(text)
}
