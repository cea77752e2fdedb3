/** Completion scripts for bash, zsh and fish, from the tree of commands: subcommands, options and their choices. */
import { Argument, Command, type Option } from 'commander'
import type { Output } from './output.ts'
import type { Profile } from './profile/profile.ts'
import type { Settings } from './settings.ts'

export const SHELLS = ['bash', 'zsh', 'fish'] as const
export type ShellName = (typeof SHELLS)[number]

export function completionScript(shell: ShellName, program: Command): string {
  const places = placesOf(program)
  switch (shell) {
    case 'bash':
      return bashScript(program, places)
    case 'zsh':
      return `#compdef ${program.name()}\nautoload -U +X bashcompinit && bashcompinit\n${bashScript(program, places)}`
    case 'fish':
      return fishScript(program, places)
  }
}

/** A command with what can follow it. */
interface Place {
  /** `dead list`; empty for the program itself. */
  readonly path: string
  readonly commands: readonly Command[]
  readonly options: readonly Option[]
  /** What its first argument can be. */
  readonly choices: readonly string[]
}

function placesOf(program: Command): Place[] {
  const places: Place[] = []
  eachCommand(program, (command, path) => {
    const help = command.createHelp()
    const options = [...new Set([...help.visibleOptions(command), ...program.options])]
    const choices = command.registeredArguments[0]?.argChoices ?? []
    places.push({ path: path.slice(1).join(' '), commands: help.visibleCommands(command), options, choices })
  })
  return places
}

const namesOf = (option: Option): string[] => [option.short, option.long].filter((name) => name !== undefined)

function bashScript(program: Command, places: readonly Place[]): string {
  const name = program.name()
  const cases = places.map(({ path, commands, options, choices }) => {
    const words = [...commands.map((command) => command.name()), ...choices, ...options.flatMap(namesOf)]
    return `    '${path}') words='${words.join(' ')}' ;;`
  })
  const paths = places.filter(({ path }) => path !== '').map(({ path }) => `'${path}'`)
  const chosen = new Map(
    places.flatMap(({ options }) =>
      options.filter(({ argChoices }) => argChoices).map((option) => [option.long, option]),
    ),
  )
  const values = [...chosen.values()].map(
    (option) =>
      `    ${namesOf(option).join('|')}) COMPREPLY=($(compgen -W '${option.argChoices!.join(' ')}' -- "$word")); return ;;`,
  )
  return `_${name}() {
  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" path='' words='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "\${path:+$path }\${COMP_WORDS[i]}" in
    ${paths.join('|')}) path="\${path:+$path }\${COMP_WORDS[i]}" ;;
    esac
  done
  case "$before" in
${values.join('\n')}
    -f|--file|-d|--data) COMPREPLY=($(compgen -f -- "$word")); return ;;
  esac
  case "$path" in
${cases.join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -F _${name} ${name}`
}

function fishScript(program: Command, places: readonly Place[]): string {
  const name = program.name()
  const lines = places.flatMap(({ path, commands, options, choices }) => {
    const condition = conditionOf(path, commands)
    const begin = `complete -c ${name} -n '${condition}'`
    return [
      ...commands.map((command) => `${begin} -f -a ${command.name()} -d ${quoted(command.description())}`),
      ...(choices.length > 0 ? [`${begin} -f -a '${choices.join(' ')}'`] : []),
      ...options.map((option) => `${begin} ${fishOption(option)}`),
    ]
  })
  return lines.join('\n')
}

/** Its words were typed, and none of a command below it. */
function conditionOf(path: string, commands: readonly Command[]): string {
  const typed = path === '' ? [] : path.split(' ').map((word) => `__fish_seen_subcommand_from ${word}`)
  const below = commands.map((command) => command.name())
  const notYet = below.length > 0 ? [`not __fish_seen_subcommand_from ${below.join(' ')}`] : []
  return [...typed, ...notYet].join('; and ') || 'true'
}

function fishOption({ short, long, argChoices, required, description }: Option): string {
  return [
    short && `-s ${short.slice(1)}`,
    long && `-l ${long.slice(2)}`,
    argChoices ? `-x -a '${argChoices.join(' ')}'` : required && '-r',
    `-d ${quoted(description)}`,
  ]
    .filter(Boolean)
    .join(' ')
}

const quoted = (text: string): string => `'${text.replace(/['\\]/g, '\\$&')}'`

export function completionCommand(run: RunAction, programOf: () => Command): Command {
  return new Command('completion')
    .description('print the script with which a shell completes commands and options')
    .addArgument(new Argument('<SHELL>', 'the shell').choices(SHELLS))
    .addHelpText(
      'after',
      examples(
        'sealpost completion bash > ~/.local/share/bash-completion/completions/sealpost',
        'sealpost completion zsh > ~/.zfunc/_sealpost',
        'sealpost completion fish > ~/.config/fish/completions/sealpost.fish',
      ),
    )
    .action(run((shell: Shell, _options: object, name: ShellName) => print(shell, completionScript(name, programOf()))))
}

/** The script is no answer in JSON. */
function print({ output }: Shell, script: string): Promise<void> {
  return output.result({ script }, () => script)
}

/** What a command works with, and how commander's calls become actions of ours. */
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
type Action<Options extends object, Words extends readonly unknown[]> = (
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
