/**
 * Prints the files and functions of the broker that one plain envelope and its settle pass through: `bun
 * scripts/trace-message.ts [--functions] [--json]`.
 */

import { parseArgs, runCommand } from '@sealpost/harness/programs/command'
import { Command } from 'commander'
import { type PathTrace, traceMessage } from './message-trace.ts'

const command = new Command('trace-message')
  .description('Print the files and functions of the broker that a plain envelope and its settle pass.')
  .option('--functions', 'print every call instead of only the files')
  .option('--json', 'print the traces as JSON')
const options = parseArgs<{ functions?: boolean; json?: boolean }>(command)

await runCommand(async (teardown) => {
  const trace = await traceMessage(teardown)
  if (options.json) console.log(JSON.stringify(trace))
  else console.log([textOf('envelope', trace.envelope), textOf('settle', trace.settle)].join('\n\n'))
  return 0
})

function textOf(name: string, { files, moves, calls, functions }: PathTrace): string {
  const lines = options.functions ? functions : files
  return [`${name}: ${files.length} files, ${moves} moves between files, ${calls} calls`, ...lines].join('\n')
}
