/**
 * Prints which files and functions of the broker one plain envelope passes, and its settle:
 * `bun scripts/trace-message.ts [--functions] [--json]`.
 */

import { endOnSignals, forever, Teardown } from '@sealpost/harness/programs/teardown'
import { OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { type PathTrace, traceMessage } from './message-trace.ts'

const program = new Command('trace-message')
  .description('Prints which files and functions of the broker one plain envelope passes, and its settle.')
  .option('--functions', 'print every call, not only the files')
  .option('--json', 'print the traces as JSON')
  .parse()
const options = program.opts<{ functions?: boolean; json?: boolean }>()

const teardown = new Teardown()
endOnSignals(teardown)
try {
  const trace = await traceMessage(teardown)
  await teardown.run()
  if (options.json) console.log(JSON.stringify(trace))
  else console.log([textOf('envelope', trace.envelope), textOf('settle', trace.settle)].join('\n\n'))
  process.exit(0)
} catch (error) {
  if (teardown.isRunning) await forever()
  process.stderr.write(`${error instanceof OperatingError ? error.message : String((error as Error).stack)}\n`)
  await teardown.run()
  process.exit(1)
}

function textOf(name: string, { files, moves, calls, functions }: PathTrace): string {
  const lines = options.functions ? functions : files
  return [`${name}: ${files.length} files, ${moves} moves between files, ${calls} calls`, ...lines].join('\n')
}
