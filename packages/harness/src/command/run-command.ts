/** How every command of this repository starts and ends. */
import { OperatingError } from '@sealpost/std'
import { type Command, CommanderError } from 'commander'
import { createColors } from 'picocolors'
import { endOnSignals, forever, Teardown } from '../programs/teardown.ts'

/**
 * Runs a command and exits with the code that it returns. What it added to the teardown ends first, also after an error
 * and after Ctrl-C. An `OperatingError` prints as one sentence, any other error with its stack; both exit with 1.
 */
export async function runCommand(command: (teardown: Teardown) => Promise<number>): Promise<never> {
  const teardown = new Teardown()
  endOnSignals(teardown)
  let exitCode = 1
  try {
    exitCode = await command(teardown)
  } catch (error) {
    if (teardown.isRunning) await forever() // an interrupted command fails because of the interrupt
    process.stderr.write(`${error instanceof OperatingError ? error.message : String((error as Error).stack)}\n`)
  }
  await teardown.run()
  process.exit(exitCode)
}

/** Parses the arguments. Exits with 0 after the help and with 2 after wrong usage. */
export function parseArgs<Options>(command: Command, args: readonly string[] = process.argv.slice(2)): Options {
  command.showHelpAfterError(true).allowExcessArguments(false).exitOverride()
  try {
    return command.parse(args, { from: 'user' }).opts() as Options
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    return process.exit(error.exitCode === 0 ? 0 : 2)
  }
}

/** Whether standard output is a terminal that shows colors. */
export const isColored = (): boolean => process.stdout.isTTY === true && !process.env.NO_COLOR

export const terminalColors = () => createColors(isColored())
