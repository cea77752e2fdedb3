/** Starts and ends this repository's commands, and parses their options. */
import { OperatingError } from '@sealpost/std'
import { type Command, CommanderError, InvalidArgumentError } from 'commander'
import { createColors } from 'picocolors'
import { endOnSignals, forever, Teardown } from './teardown.ts'

/**
 * Runs a command, then its teardown, also after an error or Ctrl-C. Exits with the returned code, or with 1 after an
 * error; prints an `OperatingError` as one sentence, others with their stack.
 */
export async function runCommand(command: (teardown: Teardown) => Promise<number>): Promise<never> {
  const teardown = new Teardown()
  endOnSignals(teardown)
  let exitCode = 1
  try {
    exitCode = await command(teardown)
  } catch (error) {
    if (teardown.isRunning) await forever() // the interruption may be the cause, so report nothing
    process.stderr.write(`${error instanceof OperatingError ? error.message : String((error as Error).stack)}\n`)
  }
  await teardown.run()
  process.exit(exitCode)
}

/** The hint after an error, which the complete help would push off the screen. */
export const HELP_HINT = '(add --help for the options and examples)'

/** Parses the arguments. Exits with 0 after the help, with 2 if they are invalid. */
export function parseArgs<Options>(command: Command, args: readonly string[] = process.argv.slice(2)): Options {
  command.showHelpAfterError(HELP_HINT).allowExcessArguments(false).exitOverride()
  try {
    return command.parse(args, { from: 'user' }).opts() as Options
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    return process.exit(error.exitCode === 0 ? 0 : 2)
  }
}

export const isColored = (): boolean => process.stdout.isTTY === true && !process.env.NO_COLOR

export const terminalColors = () => createColors(isColored())

/** Returns a parser, for commander, of a whole number in a range. */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const number = /^\d+$/.test(text) ? Number(text) : Number.NaN
    if (number >= min && number <= max) return number
    throw new InvalidArgumentError(`Use a whole number from ${min} to ${max}.`)
  }
}

export function share(text: string): number {
  const number = /^(0|1|0?\.\d{1,4})$/.test(text) ? Number(text) : Number.NaN
  if (number >= 0 && number <= 1) return number
  throw new InvalidArgumentError('Use a share from 0 to 1, such as 0.5.')
}

/** Returns a parser of a repeatable option with these values. */
export const oneOf =
  (names: readonly string[]) =>
  (name: string, before: readonly string[] = []): readonly string[] => {
    if (names.includes(name)) return [...before, name]
    throw new InvalidArgumentError(`There is no "${name}". Choose from ${names.join(', ')}.`)
  }
