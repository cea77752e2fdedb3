/**
 * What claims and settles of a long drain cost Postgres, each 100,000 deliveries: `bun scripts/drain.ts`, or with
 * `--rows 1000000 --recipients 10`. No broker and no client takes part; `load-test.ts --soak 5s --backlog 1000000` has them.
 */

import { endOnSignals, forever, Teardown } from '@sealpost/harness/programs/teardown'
import { count, plainTable } from '@sealpost/harness/report/text'
import { OperatingError } from '@sealpost/std'
import { Command, InvalidArgumentError } from 'commander'
import { createColors } from 'picocolors'
import { type DrainOptions, measureDrain, type Step } from './drain.ts'

const options = new Command('drain')
  .description('Measures what claims and settles of waiting deliveries cost Postgres, from the first to the last.')
  .option('--rows <count>', 'deliveries that wait', wholeNumber, 600_000)
  .option('--recipients <count>', 'whom they wait for', wholeNumber, 100)
  .option(
    '--floor',
    'claim only behind what was claimed before: a broker may not, and it is the least that a claim can cost',
  )
  .option('--table <settings>', 'storage settings of message_queue, such as "fillfactor = 50"')
  .addHelpText('after', '\nDATABASE_URL names an empty Postgres database; without it an embedded one is started.')
  .parse()
  .opts<DrainOptions>()

const teardown = new Teardown()
endOnSignals(teardown)
let exitCode = 0
try {
  console.log(tableOf(await measureDrain(options, teardown)))
} catch (error) {
  if (teardown.isRunning) await forever()
  console.error(error instanceof OperatingError ? error.message : String((error as Error).stack))
  exitCode = 1
}
await teardown.run()
process.exit(exitCode)

function tableOf(steps: readonly Step[]): string {
  const head = ['up to', 'a second', 'claim µs', 'settle µs', 'blocks read', 'page images', 'WAL MB', 'vacuums']
  const table = plainTable(head, createColors(process.stdout.isTTY))
  for (const { upTo, perSecond, claimUs, settleUs, blocksRead, pageImages, walBytes, vacuums } of steps)
    table.push([
      ...[count(upTo), count(perSecond), claimUs.toFixed(1), settleUs.toFixed(1), count(blocksRead)],
      ...[count(pageImages), count(walBytes / 1e6), count(vacuums)],
    ])
  return `${table.toString()}\nµs: CPU of the two connections, for each delivery.`
}

function wholeNumber(text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0 && value <= 100_000_000) return value
  throw new InvalidArgumentError('It is a whole number from 1 to 100000000.')
}
