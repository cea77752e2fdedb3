/**
 * Moves one identity between two brokers under mail, again and again, and counts what came out of order:
 * `bun scripts/drill-takeover.ts [--runs 20] [--takeovers 40] [--rate 600] [--json]`. The exit code is 1 when a promise was
 * broken.
 */
import { OperatingError } from '@sealpost/std'
import { Command, InvalidArgumentError } from 'commander'
import { drillTakeover, type TakeoverResult } from './drill/takeover.ts'
import { endOnSignals, forever, Teardown } from './lib/teardown.ts'

const program = new Command('drill-takeover')
  .description('Moves one identity between two brokers under mail, and counts what came out of order.')
  .option('--runs <n>', 'each with a mesh of its own', wholeNumber, 20)
  .option('--takeovers <n>', 'in each run', wholeNumber, 40)
  .option('--rate <n>', 'messages a second of all senders together', wholeNumber, 600)
  .option('--json', 'print the results as JSON')
  .parse()
const options = program.opts<{ runs: number; takeovers: number; rate: number; json?: boolean }>()

const teardown = new Teardown()
endOnSignals(teardown)
try {
  const results = await drillTakeover(options, teardown, (result) => void (options.json || console.log(lineOf(result))))
  await teardown.run()
  if (options.json) console.log(JSON.stringify(results))
  process.exit(results.every(isGood) ? 0 : 1)
} catch (error) {
  if (teardown.isRunning) await forever()
  process.stderr.write(`${error instanceof OperatingError ? error.message : String((error as Error).stack)}\n`)
  await teardown.run()
  process.exit(1)
}

function isGood({ lost, misordered }: TakeoverResult): boolean {
  return lost + misordered === 0
}

function lineOf(result: TakeoverResult): string {
  const { sent, lost, misordered, gaps, repeated } = result
  const mark = isGood(result) ? '✔' : '✘'
  return `${mark} of ${sent} messages ${misordered} out of order, ${lost} lost; ${repeated} handed out again, ${gaps} missed that another connection had settled`
}

function wholeNumber(text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0 && value <= 100_000) return value
  throw new InvalidArgumentError('It is a whole number from 1 to 100000.')
}
