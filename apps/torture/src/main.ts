/**
 * Breaks everything a broker rests on, under load, and joins what every peer saw into a verdict on every message.
 *
 *   bun scripts/torture.ts --minutes 5            --list names the scenarios, --help tells the rest
 *
 * The folders hold the parts: `cluster/` (Postgres and brokers), `peers/` (programs of peers), `scenarios/` (the faults),
 * `judgement/` (what happened, what may happen, and the verdict), `mutations/` (planted bugs that the checker must find).
 */

import { endOnSignals, forever, Teardown } from '@sealpost/harness/programs/teardown'
import { OperatingError } from '@sealpost/std'
import { createColors } from 'picocolors'
import { randomSeed, readTortureOptions, type TortureOptions } from './options.ts'
import { printLines, totalOf } from './report.ts'
import { NO_TIME } from './run.ts'
import { SCENARIOS } from './scenarios.ts'
import { torture } from './torture.ts'

const teardown = new Teardown()
let exitCode: number | undefined

endOnSignals(teardown)
const options = readTortureOptions(process.argv.slice(2))
if (typeof options === 'number') process.exit(options)
const seed = options.seed ?? randomSeed()
if (options.list) list()
else await main(options)
await teardown.run()
process.exit(exitCode ?? 0)

function list(): void {
  const width = Math.max(...SCENARIOS.map(({ name }) => name.length))
  for (const { name, summary, alone } of SCENARIOS)
    console.log(`${name.padEnd(width)}  ${summary}${alone ? ' (alone)' : ''}`)
}

async function main(options: TortureOptions): Promise<void> {
  const tell = (step: string) => process.stderr.write(`${step}\n`)
  try {
    const lines = await torture({ ...options, seed, tell }, teardown)
    const isGood = totalOf(lines).outcome === 'held' && lines.some(({ outcome }) => outcome === 'held')
    if (options.json) console.log(JSON.stringify({ seed, isGood, lines, total: totalOf(lines) }, null, 2))
    else console.log(printLines(lines, createColors(process.stdout.isTTY === true && !process.env.NO_COLOR)))
    process.stderr.write(
      isGood ? `Every promise held; seed ${seed}.\n` : `Not as promised; repeat it with --seed ${seed}.\n`,
    )
    const left = lines.filter(({ reasons }) => reasons.includes(NO_TIME)).length
    if (left > 0)
      process.stderr.write(`${left} of ${lines.length} scenarios had no turn in ${options.minutes} minutes.\n`)
    exitCode = isGood ? 0 : 1
  } catch (error) {
    if (teardown.isRunning) await forever() // interrupted: whatever broke, broke because of that
    process.stderr.write(`${error instanceof OperatingError ? error.message : String((error as Error).stack)}\n`)
    process.stderr.write(`The seed was ${seed}.\n`)
    exitCode = 1
  }
}
