/**
 * The tree of commands. The help, the completions and the reference page are made from it. A run loads only the commands that it
 * names: without Postgres, the checks and the operators' shapes `send` starts in half the time.
 */
import { Command } from 'commander'
import manifest from '../package.json'
import { completionCommand, eachCommand, examples, type RunAction } from './completion.ts'
import { exitReasons } from './exit-codes.ts'
import { type OutputStreams, platformStreams } from './output.ts'
import { variables } from './settings.ts'

type MakeCommand = (run: RunAction) => Command
type CommandTable = Readonly<Record<string, () => Promise<MakeCommand>>>

/** By the headings of the help, in its order. */
const COMMANDS: Readonly<Record<string, CommandTable>> = {
  'Begin:': {
    up: async () => (await import('./broker/up.ts')).upCommand,
    keygen: async () => (await import('./profile/keys.ts')).keygenCommand,
    join: async () => (await import('./members/invite.ts')).joinCommand,
    invite: async () => (await import('./members/invite.ts')).inviteCommand,
  },
  'Messages:': {
    peers: async () => (await import('./members/peers.ts')).peersCommand,
    send: async () => (await import('./messages/send.ts')).sendCommand,
    group: async () => (await import('./members/group.ts')).groupCommand,
    pool: async () => (await import('./members/pool.ts')).poolCommand,
    request: async () => (await import('./messages/request.ts')).requestCommand,
    listen: async () => (await import('./messages/listen.ts')).listenCommand,
    chat: async () => (await import('./messages/chat.ts')).chatCommand,
    mcp: async () => (await import('./mcp/serve.ts')).mcpCommand,
  },
  'State and history:': {
    space: async () => (await import('./state/space.ts')).spaceCommand,
    state: async () => (await import('./state/state.ts')).stateCommand,
    history: async () => (await import('./state/state.ts')).historyCommand,
  },
  'Look after it:': {
    status: async () => (await import('./profile/status.ts')).statusCommand,
    consent: async () => (await import('./members/peers.ts')).consentCommand,
    device: async () => (await import('./members/device.ts')).deviceCommand,
    key: async () => (await import('./profile/keys.ts')).keyCommand,
    doctor: async () => (await import('./doctor/doctor.ts')).doctorCommand,
    admin: async () => (await import('./operator/admin.ts')).adminCommand,
    dead: async () => (await import('./operator/dead-letters.ts')).deadCommand,
    db: async () => (await import('./operator/db.ts')).dbCommand,
    shard: async () => (await import('./operator/shard.ts')).shardCommand,
    mesh: async () => (await import('./operator/mesh-move.ts')).meshCommand,
  },
}

/** With every command. What commander says itself, help and usage errors, goes to `streams`. */
export const sealpost = (run: RunAction, streams: OutputStreams = platformStreams): Promise<Command> =>
  programOf(run, streams, () => true)

/** With the commands that stand among these words; every command when none does, or when their names are asked for. */
export function sealpostFor(words: readonly string[], run: RunAction, streams: OutputStreams): Promise<Command> {
  const isNamed = (name: string) => words.includes(name)
  const names = Object.values(COMMANDS).flatMap(Object.keys)
  return programOf(run, streams, !isNamed('completion') && names.some(isNamed) ? isNamed : () => true)
}

async function programOf(
  run: RunAction,
  { out, err }: OutputStreams,
  isWanted: (command: string) => boolean,
): Promise<Command> {
  const program = new Command('sealpost')
    .description('Durable, end-to-end encrypted messages between peers, over a broker that can read none of them.')
    .version(manifest.version, '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .helpCommand(false)
    .option('-p, --profile <NAME>', 'the identity to use')
    .option('--passphrase-file <FILE>', 'the first line of FILE unlocks the keys')
    .option('--json', 'answer in JSON, one object a line; errors too, on stderr')
    .option('-q, --quiet', 'say nothing that is only nice to know')
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({
      writeOut: (text) => void out.write(text, () => undefined),
      writeErr: (text) => void err.write(text, () => undefined),
    })
    .exitOverride()
  for (const [heading, table] of Object.entries(COMMANDS)) {
    program.commandsGroup(heading)
    for (const [name, load] of Object.entries(table)) if (isWanted(name)) program.addCommand((await load())(run))
  }
  program.addCommand(completionCommand(run, () => program))
  program.addHelpText('after', FOOT)
  eachCommand(program, (command) => command.copyInheritedSettings(program).showHelpAfterError(HINT))
  return program
}

const HINT = '(add --help for the options and examples)'

const aligned = (rows: readonly (readonly [string, string])[]): string => {
  const width = Math.max(...rows.map(([name]) => name.length))
  return rows.map(([name, meaning]) => `  ${name.padEnd(width)}  ${meaning}`).join('\n')
}

const FOOT = `${examples(
  'sealpost up                                  a broker on this machine, with its database',
  'sealpost invite create                       a line for someone to join with',
  'sealpost join sealpost1:…                    what they do with it',
  'sealpost chat bob',
  'git diff | sealpost send bob',
  "sealpost listen --exec './review.sh'",
)}

Environment:
${aligned(variables.map(({ name, meaning }) => [name, meaning.replaceAll('`', '')]))}

Exit codes:
${aligned(exitReasons.map(({ name, exitCode, meaning }) => [String(exitCode), `${name.replace('_', ' ')}: ${meaning}`]))}`
