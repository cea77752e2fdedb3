/** Runs a drill: simulates a failure, prints the requirements, and exits with 1 if one is not met. */
import { parseArgs, runCommand } from '@sealpost/harness/programs/command'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { checkMark } from '@sealpost/harness/report/text'
import { Command } from 'commander'

export interface Drill<Options> {
  readonly name: string
  readonly description: string
  readonly configure: (command: Command) => Command
  readonly run: (options: Options, teardown: Teardown) => Promise<DrillReport>
}

interface DrillReport {
  readonly result: object
  readonly checks: readonly DrillCheck[]
}

export type DrillCheck = readonly [isMet: boolean, sentence: string]

export function runDrill<Options>({ name, description, configure, run }: Drill<Options>): Promise<never> {
  const command = configure(new Command(`bun scripts/drill-${name}.ts`).description(description))
    .option('--json', 'print the result as JSON')
    .addHelpText('after', '\nExit code: 0 success · 1 a check failed · 2 invalid usage')
  const { json, ...options } = parseArgs<Options & { json?: true }>(command)
  return runCommand(async (teardown) => {
    const { result, checks } = await run(options as Options, teardown)
    const lines = checks.map(([isMet, sentence]) => `${checkMark(isMet)} ${sentence}`)
    process.stdout.write(`${json ? JSON.stringify(result) : lines.join('\n')}\n`)
    return checks.every(([isMet]) => isMet) ? 0 : 1
  })
}
