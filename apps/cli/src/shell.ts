/** What a command works with, and how commander's calls become actions of ours. */
import type { Command } from 'commander'
import type { Output } from './output.ts'
import type { Profile } from './profile/profile.ts'
import type { Settings } from './settings.ts'

export interface Shell {
  readonly settings: Settings
  readonly output: Output
  /** The one chosen; it need not exist. */
  readonly profile: Profile
  /** Fires on Ctrl-C and its kin, with the error to end with. */
  readonly signal: AbortSignal
}

/** Options that every command takes. */
export interface GlobalOptions {
  readonly profile?: string
  readonly passphraseFile?: string
  readonly json?: boolean
  readonly quiet?: boolean
}

/** Ends well by returning, and otherwise by an error with a code (`exit-codes.ts`). */
export type Action<Options extends object, Words extends readonly unknown[]> = (
  shell: Shell,
  options: Options,
  ...words: Words
) => Promise<void>

export type RunAction = <Options extends object, Words extends readonly unknown[]>(
  action: Action<Options, Words>,
) => (...given: unknown[]) => Promise<void>

/** commander gives the words, then the options, then the command itself. */
export function runIn(shellFor: (options: GlobalOptions) => Shell): RunAction {
  return <Options extends object, Words extends readonly unknown[]>(action: Action<Options, Words>) =>
    async (...given) => {
      const options = (given.at(-1) as Command).optsWithGlobals<Options & GlobalOptions>()
      await action(shellFor(options), options, ...(given.slice(0, -2) as unknown as Words))
    }
}

/** For the end of a command's help. */
export function examples(...lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  ${line}`).join('\n')}`
}

/** The command and all below it, in the order of the help, each with the names that lead to it. */
export function eachCommand(
  command: Command,
  visit: (command: Command, path: readonly string[]) => void,
  above: readonly string[] = [],
): void {
  const path = [...above, command.name()]
  visit(command, path)
  for (const below of command.commands) eachCommand(below, visit, path)
}
