/** Renders `docs/reference/cli.md` from the tree of commands. A test compares them. */
import type { Argument, Command, Option } from 'commander'
import { exitReasons } from './exit-codes.ts'
import { sealpost } from './program.ts'
import { variables } from './settings.ts'
import { eachCommand } from './shell.ts'

export async function cliReference(): Promise<string> {
  const program = await sealpost(() => () => Promise.resolve())
  const sections: string[] = []
  eachCommand(program, (command, path) => {
    if (path.length > 1 && isRun(command)) sections.push(sectionOf(command, path))
  })
  return [
    HEAD,
    table(['Option', 'Meaning'], optionRows(program.options)),
    '## Environment',
    table(
      ['Variable', 'Meaning'],
      variables.map(({ name, meaning }) => [code(name), meaning]),
    ),
    '## Exit codes',
    table(
      ['Code', 'Name', 'Meaning'],
      exitReasons.map(({ exitCode, name, meaning }) => [String(exitCode), name.replace('_', ' '), meaning]),
    ),
    ...sections,
    '',
  ].join('\n\n')
}

/** Whether the command runs by itself, and is more than a group of commands. */
const isRun = (command: Command): boolean => command.commands.length === 0 || command.registeredArguments.length > 0

const HEAD = `<!-- Made by \`bun scripts/reference.ts\` from apps/cli/src; a test compares them. -->
# The command \`sealpost\`

Run \`bun apps/cli/src/main.ts\`, or \`sealpost\` if the package \`@sealpost/cli\` is installed. Results go to stdout, everything
else to stderr. Text from peers is escaped before it reaches a terminal; \`--json\` prints it unchanged.

Every command also accepts these options:`

function sectionOf(command: Command, path: readonly string[]): string {
  const title = path.slice(1).join(' ')
  const usage = [
    title,
    ...command.registeredArguments.map(usageOf),
    ...(command.options.length > 0 ? ['[options]'] : []),
  ].join(' ')
  const rows = [
    ...command.registeredArguments.map((argument) => [code(argument.name()), describe(argument)] as const),
    ...optionRows(command.options),
  ]
  return [
    `## \`${title}\``,
    `${sentence(command.description())}${usage === title ? '' : ` Usage: ${code(usage)}`}`,
    ...(rows.length > 0 ? [rows.map(([word, meaning]) => `- ${word}: ${meaning}`).join('\n')] : []),
    `\`\`\`sh no-run\n${examplesOf(command)}\n\`\`\``,
  ].join('\n\n')
}

const sentence = (text: string): string => (text.endsWith('.') ? text : `${text}.`)

const usageOf = (argument: Argument): string => {
  const name = argument.variadic ? `${argument.name()}…` : argument.name()
  return argument.required ? name : `[${name}]`
}

function optionRows(options: readonly Option[]): [string, string][] {
  return options.map((option) => [code(option.flags), describe(option)])
}

function describe(word: Argument | Option): string {
  const choices = word.argChoices ? `one of ${word.argChoices.map(code).join(', ')}` : ''
  const hasDefault = word.defaultValue !== undefined && typeof word.defaultValue !== 'boolean'
  const fallback = hasDefault ? `default ${code(String(word.defaultValueDescription ?? word.defaultValue))}` : ''
  return [word.description, choices, fallback].filter(Boolean).join('; ')
}

/** Returns the examples at the end of the command's help. */
function examplesOf(command: Command): string {
  let help = ''
  command.configureOutput({ writeOut: (text) => (help += text) }).outputHelp()
  return help
    .slice(help.indexOf('Examples:\n') + 'Examples:\n'.length)
    .replace(/^ {2}/gm, '')
    .trim()
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`
  return [line(head), `|${head.map(() => '---').join('|')}|`, ...rows.map(line)].join('\n')
}

const code = (text: string): string => `\`${text}\``
