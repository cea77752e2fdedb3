/**
 * Moves a mesh with a long queue from one cell to another while its peers write, and looks what became of every message:
 * `bun scripts/drill-move.ts [--queued 100000] [--rate 200] [--old-cell-gone] [--json]`. The exit code is 1 when a promise was broken,
 * or when a pair paused for more than ten seconds although its old cell was to be needed no more.
 */
import { OperatingError } from '@sealpost/std'
import { Command, InvalidArgumentError } from 'commander'
import { drillMove, type MoveDrillResult } from './drill/move.ts'
import { endOnSignals, forever, Teardown } from './lib/teardown.ts'

const program = new Command('drill-move')
  .description('Moves a mesh between two cells under mail, and counts what came through.')
  .option('--queued <n>', 'messages that wait for absent peers meanwhile', wholeNumber, 100_000)
  .option('--rate <n>', 'messages a second between the others', wholeNumber, 200)
  .option('--old-cell-gone', 'end the old cell after the move, and start the broker of the new one again')
  .option('--json', 'print the result as JSON')
  .parse()
const options = program.opts<{ queued: number; rate: number; oldCellGone?: boolean; json?: boolean }>()
const PAUSE_MAX_MS = 10_000

const teardown = new Teardown()
endOnSignals(teardown)
try {
  const isOldCellGone = options.oldCellGone === true
  const result = await drillMove({ ...options, isOldCellGone }, teardown)
  await teardown.run()
  console.log(options.json ? JSON.stringify(result) : lineOf(result))
  const isInTime = !isOldCellGone || result.longestPauseMs <= PAUSE_MAX_MS
  process.exit(result.lost + result.duplicates + result.misordered === 0 && isInTime ? 0 : 1)
} catch (error) {
  if (teardown.isRunning) await forever()
  process.stderr.write(`${error instanceof OperatingError ? error.message : String((error as Error).stack)}\n`)
  await teardown.run()
  process.exit(1)
}

function lineOf(result: MoveDrillResult): string {
  return [
    `queued ${result.queued}, sent meanwhile ${result.live}; moved ${result.rows} rows in ${(result.tookMs / 1000).toFixed(1)} s`,
    `a pause of ${(result.pauseMs / 1000).toFixed(2)} s; the send that waited longest took ${(result.longestSendMs / 1000).toFixed(2)} s`,
    `the longest pause of a pair: ${(result.longestPauseMs / 1000).toFixed(2)} s`,
    `lost ${result.lost}, duplicates ${result.duplicates}, misordered ${result.misordered}`,
    `the mover's memory grew by ${Math.round(result.grownBytes / 1024 / 1024)} MiB`,
  ].join('\n')
}

function wholeNumber(text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0 && value <= 1_000_000) return value
  throw new InvalidArgumentError('It is a whole number from 1 to 1000000.')
}
