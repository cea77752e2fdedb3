/**
 * Takes a backup under mail, loses the database, restores the backup, and looks what became of every message:
 * `bun scripts/drill-restore.ts [--messages 500] [--json]`. The exit code is 1 when a promise was broken.
 */
import { OperatingError } from '@sealpost/std'
import { Command, InvalidArgumentError } from 'commander'
import { type DrillResult, drillRestore } from './drill/restore.ts'
import { endOnSignals, forever, Teardown } from './lib/teardown.ts'

const program = new Command('drill-restore')
  .description('Backs up a database under mail, loses it, restores it, and counts what came through.')
  .option('--messages <n>', 'in each of the three parts', wholeNumber, 500)
  .option('--json', 'print the result as JSON')
  .parse()
const options = program.opts<{ messages: number; json?: boolean }>()

const teardown = new Teardown()
endOnSignals(teardown)
try {
  const result = await drillRestore(options, teardown)
  await teardown.run()
  console.log(options.json ? JSON.stringify(result) : lineOf(result))
  process.exit(isGood(result) ? 0 : 1)
} catch (error) {
  if (teardown.isRunning) await forever()
  process.stderr.write(`${error instanceof OperatingError ? error.message : String((error as Error).stack)}\n`)
  await teardown.run()
  process.exit(1)
}

function isGood({ lost, duplicates, misordered, idsReused, isNewIncarnation }: DrillResult): boolean {
  return lost + duplicates + misordered + idsReused === 0 && isNewIncarnation
}

function lineOf(result: DrillResult): string {
  return [
    `acked ${result.acked}, of these ${result.ackedAfterBackup} after the backup; said again ${result.reoffered}`,
    `delivered ${result.delivered}, lost ${result.lost}, duplicates ${result.duplicates}, misordered ${result.misordered}`,
    `ids given twice ${result.idsReused}; ${result.isNewIncarnation ? 'a new' : 'the SAME'} incarnation`,
    `the last forgotten message was there ${(result.recoveredInMs / 1000).toFixed(1)} s after the restore began`,
  ].join('\n')
}

function wholeNumber(text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0 && value <= 1000) return value
  throw new InvalidArgumentError('It is a whole number from 1 to 1000.')
}
