/** Defines the shell of a command, its waits, and helpers that define commands. */
import { OperatingError } from '@sealpost/std'
import type { Command } from 'commander'
import { escapeName, type Output } from './output.ts'
import type { Profile } from './profile/profile.ts'
import type { Settings } from './settings.ts'

export interface Shell {
  readonly settings: Settings
  readonly output: Output
  /** The profile, which may not exist. */
  readonly profile: Profile
  /** Aborts on an interrupt, with the command's error as its reason. */
  readonly signal: AbortSignal
}

export interface GlobalOptions {
  readonly profile?: string
  readonly passphraseFile?: string
  readonly json?: boolean
  readonly quiet?: boolean
}

/** Runs a command. The code of its error determines the exit code (`exit-codes.ts`). */
type Action<Options extends object, Words extends readonly unknown[]> = (
  shell: Shell,
  options: Options,
  ...words: Words
) => Promise<void>

export type RunAction = <Options extends object, Words extends readonly unknown[]>(
  action: Action<Options, Words>,
) => (...given: unknown[]) => Promise<void>

/** Runs an action in a shell. Commander passes arguments, options and command. */
export function runIn(shellFor: (options: GlobalOptions) => Shell): RunAction {
  return <Options extends object, Words extends readonly unknown[]>(action: Action<Options, Words>) =>
    async (...given) => {
      const command = given.at(-1) as Command
      const options = command.optsWithGlobals<Options & GlobalOptions>()
      checkEmpty(command, given)
      await action(shellFor(options), options, ...(given.slice(0, -2) as unknown as Words))
    }
}

/** Arguments whose value is no name. */
const MAY_BE_EMPTY: readonly string[] = ['TEXT', 'VALUE', 'SUMMARY']

/** @throws OperatingError `usage` if the value of an argument or of an option is empty, as with an unset variable */
function checkEmpty(command: Command, given: readonly unknown[]): void {
  const words = command.registeredArguments.map((argument) => argument.name().toUpperCase())
  const empty = words.find((word, i) => !MAY_BE_EMPTY.includes(word) && isEmpty(given[i]))
  if (empty !== undefined) throw new OperatingError('usage', `The argument ${empty} is empty.`)
  const options = command.options.find((option) => isEmpty(command.getOptionValue(option.attributeName())))
  if (options) throw new OperatingError('usage', `The value of ${options.long} is empty.`)
}

const isEmpty = (value: unknown): boolean => [value].flat().some((text) => typeof text === 'string' && !text.trim())

export function examples(...lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  ${line}`).join('\n')}`
}

/** Visits a command and its subcommands in the order of the help, with their full names. */
export function eachCommand(
  command: Command,
  visit: (command: Command, path: readonly string[]) => void,
  above: readonly string[] = [],
): void {
  const path = [...above, command.name()]
  visit(command, path)
  for (const below of command.commands) eachCommand(below, visit, path)
}

/** Warns of variables that `--env` names and that are not set. */
export function warnOfUnset({ settings, output }: Shell, names: readonly string[]): void {
  for (const name of names)
    if (settings.environment[name] === undefined) output.warn(`--env ${escapeName(name)}: the variable is not set`)
}

/** Returns a shell whose signal also aborts after `seconds`, until it is disposed. */
export function withDeadline(shell: Shell, seconds: number, sentence: string): Shell & Disposable {
  const clock = new AbortController()
  const timer = setTimeout(() => clock.abort(new OperatingError('timeout', sentence)), seconds * 1000)
  return {
    ...shell,
    signal: AbortSignal.any([shell.signal, clock.signal]),
    [Symbol.dispose]: () => clearTimeout(timer),
  }
}

/** Settles like the promise, unless the signal aborts first. */
export async function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted()
  const aborted = Promise.withResolvers<never>()
  const abort = () => aborted.reject(signal.reason)
  signal.addEventListener('abort', abort)
  promise.catch(() => undefined) // nobody awaits the promise after an abort
  try {
    return await Promise.race([promise, aborted.promise])
  } finally {
    signal.removeEventListener('abort', abort)
  }
}

/** Resolves when the signal fires. */
export function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve()
    signal.addEventListener('abort', () => resolve(), { once: true })
  })
}
