/**
 * Builds and runs the command tree, which also yields help, completions and the reference page. Loads only the typed
 * commands, which halves the startup time of `send`.
 */
import { SealpostError } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import { Argument, Command, CommanderError, type Option } from 'commander'
import manifest from '../package.json'
import { exitCodeOf, exitReasonOf, exitReasons } from './exit-codes.ts'
import { Output, type OutputStreams, platformStreams, remedyOf } from './output.ts'
import { Passphrase, platformTerminal } from './profile/passphrase.ts'
import { Profile } from './profile/profile.ts'
import { type Settings, variables } from './settings.ts'
import { eachCommand, examples, type GlobalOptions, type RunAction, runIn, type Shell } from './shell.ts'

type MakeCommand = (run: RunAction) => Command
type CommandTable = Readonly<Record<string, () => Promise<MakeCommand>>>

/** Commands by heading, in the order of the help. */
const COMMANDS: Readonly<Record<string, CommandTable>> = {
  'Start:': {
    up: async () => (await import('./broker/up.ts')).upCommand,
    keygen: async () => (await import('./profile/keys.ts')).keygenCommand,
    join: async () => (await import('./members/invite.ts')).joinCommand,
    invite: async () => (await import('./members/invite.ts')).inviteCommand,
  },
  'Messages:': {
    peers: async () => (await import('./members/peers.ts')).peersCommand,
    send: async () => (await import('./messages/send.ts')).sendCommand,
    group: async () => (await import('./members/group.ts')).groupCommand,
    pool: async () => (await import('./members/group.ts')).poolCommand,
    schedule: async () => (await import('./schedule/schedule.ts')).scheduleCommand,
    request: async () => (await import('./messages/request.ts')).requestCommand,
    inbox: async () => (await import('./messages/inbox.ts')).inboxCommand,
    prepare: async () => (await import('./messages/prepare.ts')).prepareCommand,
    listen: async () => (await import('./messages/listen.ts')).listenCommand,
    sent: async () => (await import('./messages/sent.ts')).sentCommand,
    why: async () => (await import('./messages/sent.ts')).whyCommand,
    chat: async () => (await import('./messages/chat.ts')).chatCommand,
    mcp: async () => (await import('./mcp/serve.ts')).mcpCommand,
    gateway: async () => (await import('./gateway/gateway.ts')).gatewayCommand,
    work: async () => (await import('./work/work.ts')).workCommand,
  },
  'State and history:': {
    space: async () => (await import('./state/space.ts')).spaceCommand,
    state: async () => (await import('./state/state.ts')).stateCommand,
    history: async () => (await import('./state/state.ts')).historyCommand,
    conversations: async () => (await import('./state/conversations.ts')).conversationsCommand,
  },
  'Maintenance:': {
    status: async () => (await import('./profile/status.ts')).statusCommand,
    consent: async () => (await import('./members/peers.ts')).consentCommand,
    sessions: async () => (await import('./members/sessions.ts')).sessionsCommand,
    device: async () => (await import('./members/device.ts')).deviceCommand,
    root: async () => (await import('./members/root.ts')).rootCommand,
    audit: async () => (await import('./members/audit.ts')).auditCommand,
    key: async () => (await import('./profile/keys.ts')).keyCommand,
    doctor: async () => (await import('./doctor/doctor.ts')).doctorCommand,
    admin: async () => (await import('./operator/admin.ts')).adminCommand,
    dead: async () => (await import('./operator/dead-letters.ts')).deadCommand,
    db: async () => (await import('./operator/db.ts')).dbCommand,
    broker: async () => (await import('./broker/up.ts')).brokerProgramCommand,
    shard: async () => (await import('./operator/shard.ts')).shardCommand,
    mesh: async () => (await import('./operator/mesh-move.ts')).meshCommand,
  },
}

/** Returns the program with every command. Help and usage errors go to `streams`. */
export const sealpost = (run: RunAction, streams: OutputStreams = platformStreams): Promise<Command> =>
  programOf(run, streams, { isWanted: () => true, isJson: false })

/** Returns the program with the commands in `words`; with all for completion or if there is none. */
export function sealpostFor(words: readonly string[], run: RunAction, streams: OutputStreams): Promise<Command> {
  const isNamed = (name: string) => words.includes(name)
  const names = Object.values(COMMANDS).flatMap(Object.keys)
  const isWanted = !isNamed('completion') && names.some(isNamed) ? isNamed : () => true
  return programOf(run, streams, { isWanted, isJson: isNamed('--json') })
}

async function programOf(
  run: RunAction,
  { out, err }: OutputStreams,
  { isWanted, isJson }: { readonly isWanted: (command: string) => boolean; readonly isJson: boolean },
): Promise<Command> {
  const program = new Command('sealpost')
    .description("Durable, end-to-end encrypted messages between peers, through a broker that can't read them.")
    .version(manifest.version, '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .helpCommand(false)
    .option('-p, --profile <NAME>', 'the profile (identity) to use')
    .option('--passphrase-file <FILE>', 'read the passphrase of the keys from the first line of FILE')
    .option('--json', 'print results as JSON, one object per line; errors are JSON too, on stderr')
    .option('-q, --quiet', 'suppress informational output')
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({
      writeOut: (text) => void out.write(text, () => undefined),
      writeErr: (text) => void err.write(text, () => undefined),
      outputError: (text, writeText) => {
        if (!isJson) writeText(text)
      },
    })
    .exitOverride()
  for (const [heading, table] of Object.entries(COMMANDS)) {
    program.commandsGroup(heading)
    for (const [name, load] of Object.entries(table)) if (isWanted(name)) program.addCommand((await load())(run))
  }
  program.addCommand(completionCommand(run, () => program))
  program.addHelpText('after', FOOT)
  eachCommand(program, (command) => command.copyInheritedSettings(program).showHelpAfterError(isJson ? false : HINT))
  return program
}

const HINT = '(add --help for the options and examples)'

const aligned = (rows: readonly (readonly [string, string])[]): string => {
  const width = Math.max(...rows.map(([name]) => name.length))
  return rows.map(([name, meaning]) => `  ${name.padEnd(width)}  ${meaning}`).join('\n')
}

const FOOT = `${examples(
  'sealpost up                                  run a broker and its database on this machine',
  'sealpost invite create                       create an invite for someone',
  'sealpost join sealpost1:…                    join with the invite',
  'sealpost chat bob',
  'git diff | sealpost send bob',
  "sealpost listen --exec './review.sh'",
)}

Environment:
${aligned(variables.map(({ name, meaning }) => [name, meaning.replaceAll('`', '')]))}

Exit codes:
${aligned(exitReasons.map(({ name, exitCode, meaning }) => [String(exitCode), `${name.replace('_', ' ')}: ${meaning}`]))}`

interface CliParts {
  readonly settings: Settings
  readonly signal: AbortSignal
  readonly screens?: OutputStreams
}

export async function runCli(
  words: readonly string[],
  { settings, signal, screens = platformStreams }: CliParts,
): Promise<number> {
  const { hasColors } = settings
  let output = new Output({ isJson: words.includes('--json'), isQuiet: false, hasColors }, screens)
  const shellFor = ({ profile, passphraseFile, json = false, quiet = false }: GlobalOptions): Shell => {
    output = new Output({ isJson: json, isQuiet: quiet, hasColors }, screens)
    const passphrase = new Passphrase({
      file: passphraseFile,
      fromEnvironment: settings.passphrase,
      terminal: platformTerminal(signal),
    })
    return { settings, output, signal, profile: new Profile(settings, profile ?? settings.profile, passphrase) }
  }
  try {
    const program = await sealpostFor(words, runIn(shellFor), screens)
    await program.parseAsync(words, { from: 'user' })
    return 0
  } catch (error) {
    return exitCodeFor(error, output)
  }
}

function exitCodeFor(error: unknown, output: Output): number {
  if (error instanceof CommanderError) {
    if (error.exitCode === 0) return 0
    // Commander has already printed help, and errors as text.
    if (output.isJson && error.code !== 'commander.help') output.fail('usage', error.message.replace(/^error: /, ''))
    return exitCodeOf('usage')
  }
  if (!isCoded(error)) {
    if (isBrokenPipe(error)) return exitCodeOf('failure')
    output.fail('internal', `Internal error: ${(error as Error).stack ?? String(error)}`)
    return exitCodeOf('failure')
  }
  const ending = exitReasonOf(error.code)
  if (ending !== 'interrupted') output.fail(error.code, error.message + remedyOf(error.code))
  return exitCodeOf(ending)
}

function isCoded(error: unknown): error is OperatingError | SealpostError {
  return error instanceof OperatingError || error instanceof SealpostError
}

/** Returns whether the output's reader, such as `head`, has closed the pipe. */
function isBrokenPipe(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === 'EPIPE'
}

const SHELLS = ['bash', 'zsh', 'fish'] as const
type ShellName = (typeof SHELLS)[number]

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

interface Place {
  /** The command's names, such as `dead list`; empty for the program. */
  readonly path: string
  readonly commands: readonly Command[]
  readonly options: readonly Option[]
  /** The choices for the command's first argument. */
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

/** Returns a fish condition: this command was typed, but no subcommand. */
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

function completionCommand(run: RunAction, programOf: () => Command): Command {
  return new Command('completion')
    .description('Print a script that completes commands and options in a shell')
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

function print({ output }: Shell, script: string): Promise<void> {
  return output.result({ script }, () => script)
}
