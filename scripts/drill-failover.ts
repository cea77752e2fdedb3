/**
 * Kills the primary of a replicated Postgres under mail, promotes its standby, and says who noticed:
 * `bun scripts/drill-failover.ts [--replication synchronous] [--brokers 3] [--peers 60] [--rate 600]
 * [--address several] [--loses-broker] [--json]`. The exit code is 1 when a promise was broken.
 */
import { OperatingError } from '@sealpost/std'
import { Command, InvalidArgumentError, Option } from 'commander'
import { drillFailover, type FailoverOptions, type FailoverResult } from './drill/failover.ts'
import { endOnSignals, forever, Teardown } from './lib/teardown.ts'

const FIRST_ACK_MS_MAX = 2_000

const program = new Command('drill-failover')
  .description('Kills the primary of a replicated Postgres under mail and promotes its standby.')
  .addOption(
    new Option('--replication <kind>', 'asynchronous: the standby misses the last commits')
      .choices(['synchronous', 'asynchronous'])
      .default('synchronous'),
  )
  .addOption(
    new Option(
      '--address <kind>',
      'several: brokers have a URL that names both servers; moved: one address that leads to either',
    )
      .choices(['moved', 'several'])
      .default('moved'),
  )
  .option('--brokers <n>', 'on one Postgres', from(1), 3)
  .option('--peers <n>', 'half of them write', from(2), 60)
  .option('--rate <n>', 'messages a second of all together', from(1), 600)
  .option('--loses-broker', 'kill a broker with the primary: then the others begin a new incarnation')
  .option('--json', 'print the result as JSON')
  .parse()
const { losesBroker = false, ...rest } = program.opts<FailoverOptions & { json?: boolean }>()
const options = { ...rest, losesBroker }

const teardown = new Teardown()
endOnSignals(teardown)
try {
  const result = await drillFailover(options, teardown)
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

function checksOf(result: FailoverResult): [isMet: boolean, sentence: string][] {
  const { brokerExits, resends, peersTold, firstAckMs, allAckMs, killToPromotedMs, ackedBeyondStandby } = result
  const isKept = options.replication === 'synchronous' && !losesBroker
  return [
    [brokerExits === 0, `${brokerExits} of ${options.brokers} brokers ended`],
    isKept
      ? [resends + peersTold === 0, `${resends} acknowledged messages were sent again, ${peersTold} peers were told`]
      : [
          resends >= ackedBeyondStandby,
          `${ackedBeyondStandby} acknowledged messages were missing on the standby; ${peersTold} peers were told and sent ${resends} again`,
        ],
    [
      !isKept || firstAckMs <= FIRST_ACK_MS_MAX,
      `first acknowledgement ${firstAckMs} ms after the promotion, the first of the last sender after ${allAckMs} ms; the promotion ended ${killToPromotedMs} ms after the kill`,
    ],
    [
      result.lost + result.duplicates + result.misordered === 0,
      `of ${result.sent} messages ${result.lost} lost, ${result.duplicates} twice, ${result.misordered} out of order`,
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
