/**
 * Runs the simulator: `bun scripts/sim.ts --seed 7 --verbose` replays one world. `--seeds 2000` runs many worlds, from
 * a random first seed unless `--from` sets it. Prints the first seed that breaks a promise, and exits with 1.
 * `--ratchets` runs worlds of two peers with ratchets instead, `--sender-keys` worlds of groups, and `--hostile` worlds
 * with a hostile broker.
 */
import { ready } from '@sealpost/identity'
import { type HostileOutcome, runHostileSeed } from '@sealpost/sdk/testing-hostile'
import { type RunOutcome, runSeed } from '@sealpost/sim'
import { runRatchetSeed } from '@sealpost/sim/ratchets'
import { runSenderKeySeed } from '@sealpost/sim/sender-keys'
import { Command, InvalidArgumentError } from 'commander'

const SEED_MAX = 2 ** 31
const HOSTILE_AT_ONCE = 44

const program = new Command('sim')
  .description('Run the real driver, engine and SDK in simulated worlds, each generated from a seed.')
  .option('--seed <n>', 'run only this seed', wholeNumber)
  .option('--seeds <n>', 'the number of seeds', wholeNumber, 500)
  .option('--from <n>', 'the first seed', wholeNumber)
  .option('--ratchets', 'simulate two peers with ratchets, instead of brokers')
  .option('--sender-keys', 'simulate a group with sender keys, instead of brokers')
  .option('--hostile', 'simulate a hostile broker between peers with the real SDK and cryptography')
  .option('--verbose', 'print the faults and marks of each world')
  .parse()

interface SimOptions {
  readonly seed?: number
  readonly seeds: number
  readonly from?: number
  readonly ratchets?: boolean
  readonly senderKeys?: boolean
  readonly hostile?: boolean
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
if (options.hostile) {
  await ready()
  await runHostile()
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

/** Runs worlds at the same time, because a peer holds a message with a gap for two seconds. */
async function runHostile(): Promise<void> {
  const missed: HostileOutcome[] = []
  for (let from = first; from < first + count; from += HOSTILE_AT_ONCE) {
    const seeds = Array.from({ length: Math.min(HOSTILE_AT_ONCE, first + count - from) }, (_, i) => from + i)
    for (const outcome of await Promise.all(seeds.map(runHostileSeed))) {
      const { seed, attack, violation } = outcome
      if (violation !== null) missed.push(outcome)
      if (options.verbose) console.log(`seed ${seed}: ${attack}: ${violation ?? 'as expected'}`)
      marks.set(attack, (marks.get(attack) ?? 0) + 1)
    }
  }
  for (const { seed, attack, violation } of missed) console.error(`seed ${seed}: ${attack}: ${violation}`)
  console.log(`${count - missed.length} of ${count} worlds from seed ${first} as expected; worlds by attack:`)
  printMarks(marks)
  if (missed.length > 0) process.exit(1)
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
