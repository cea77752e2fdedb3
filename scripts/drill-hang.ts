/**
 * Stops each broker for a while under mail (`SIGSTOP`) and reports how long anybody waited:
 * `bun scripts/drill-hang.ts [--brokers 2] [--peers 100] [--rate 500] [--seconds 20] [--json]`. The exit code is 1 when a promise
 * was broken or a send took longer than 8 seconds.
 */
import { OperatingError } from '@sealpost/std'
import { Command, InvalidArgumentError } from 'commander'
import { drillHang, type HangDrillResult } from './drill/hang.ts'
import { endOnSignals, forever, Teardown } from './lib/teardown.ts'

const SEND_MS_MAX = 8_000

const program = new Command('drill-hang')
  .description('Stops each broker for a while under mail and reports how long anybody waited.')
  .option('--brokers <n>', 'on one Postgres', from(2), 2)
  .option('--peers <n>', 'half of them write', from(20), 100)
  .option('--rate <n>', 'messages a second of all together', from(1), 500)
  .option('--seconds <n>', 'for which each broker is stopped', from(1), 20)
  .option('--json', 'print the result as JSON')
  .parse()
const options = program.opts<{ brokers: number; peers: number; rate: number; seconds: number; json?: boolean }>()

const teardown = new Teardown()
endOnSignals(teardown)
try {
  const result = await drillHang({ ...options, stopMs: options.seconds * 1000 }, teardown)
  await teardown.run()
  const checks = checksOf(result)
  const sentences = checks.map(([isMet, sentence]) => `${isMet ? '✔' : '✘'} ${sentence}`)
  console.log(options.json ? JSON.stringify(result) : sentences.join('\n'))
  process.exit(checks.every(([isMet]) => isMet) ? 0 : 1)
} catch (error) {
  if (teardown.isRunning) await forever()
  process.stderr.write(`${error instanceof OperatingError ? error.message : String((error as Error).stack)}\n`)
  await teardown.run()
  process.exit(1)
}

function checksOf({ stops, ...all }: HangDrillResult): [isMet: boolean, sentence: string][] {
  const { sent, lost, duplicates, misordered, lateMs } = all
  return [
    ...stops.map(({ peers, longestSendMs, longestReadMs }, no): [boolean, string] => [
      longestSendMs <= SEND_MS_MAX,
      `broker ${no + 1} was stopped and ${peers} sessions ended: the longest send took ${longestSendMs} ms (${SEND_MS_MAX} at most), the longest way to a recipient ${longestReadMs} ms`,
    ]),
    [
      lost + duplicates + misordered === 0,
      `of ${sent} messages ${lost} lost, ${duplicates} twice, ${misordered} out of order; this program came ${lateMs} ms late at most`,
    ],
  ]
}

function from(least: number) {
  return (text: string): number => {
    const value = Number(text)
    if (Number.isInteger(value) && value >= least && value <= 100_000) return value
    throw new InvalidArgumentError(`It is a whole number from ${least} to 100000.`)
  }
}
