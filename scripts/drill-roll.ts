/**
 * Replaces brokers one after the other under mail, kills one of them, and says how long anybody waited:
 * `bun scripts/drill-roll.ts [--brokers 3] [--peers 300] [--rate 2000] [--json]`. The exit code is 1 when a promise was
 * broken or somebody waited too long.
 */
import { OperatingError } from '@sealpost/std'
import { Command, InvalidArgumentError } from 'commander'
import { drillRoll, type RollDrillResult } from './drill/roll.ts'
import { endOnSignals, forever, Teardown } from './lib/teardown.ts'

const SEND_MS_MAX = 2_000
const SERVED_MS_MAX = 3_000

const program = new Command('drill-roll')
  .description('Replaces brokers under mail, kills one, and says how long anybody waited.')
  .option('--brokers <n>', 'on one Postgres', from(2), 3)
  .option('--peers <n>', 'half of them write', from(20), 300)
  .option('--rate <n>', 'messages a second of all together', from(1), 2000)
  .option('--json', 'print the result as JSON')
  .parse()
const options = program.opts<{ brokers: number; peers: number; rate: number; json?: boolean }>()

const teardown = new Teardown()
endOnSignals(teardown)
try {
  const result = await drillRoll(options, teardown)
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

function checksOf({ roll, kill, ...all }: RollDrillResult): [isMet: boolean, sentence: string][] {
  const { sent, lost, duplicates, misordered, lateMs } = all
  const { halfServedMs, allServedMs } = kill
  return [
    [
      roll.longestSendMs <= SEND_MS_MAX,
      `while all were replaced no send took longer than ${roll.longestSendMs} ms (${SEND_MS_MAX} at most)`,
    ],
    [
      allServedMs <= SERVED_MS_MAX,
      `the ${kill.peers} peers of a killed one were served again within ${allServedMs} ms, half of them within ${halfServedMs} (${SERVED_MS_MAX} at most); no send took longer than ${kill.longestSendMs} ms`,
    ],
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
