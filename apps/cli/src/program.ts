/** The tree of commands. The help, the completions and the reference page are made from it. */
import { Command } from 'commander'
import manifest from '../package.json'
import { adminCommand } from './commands/admin/admin.ts'
import { chatCommand } from './commands/chat.ts'
import { completionCommand } from './commands/completion.ts'
import { consentCommand } from './commands/consent.ts'
import { dbCommand } from './commands/db.ts'
import { deadCommand } from './commands/dead.ts'
import { deviceCommand } from './commands/device.ts'
import { doctorCommand } from './commands/doctor.ts'
import { groupCommand } from './commands/group.ts'
import { historyCommand } from './commands/history.ts'
import { inviteCommand } from './commands/invite.ts'
import { joinCommand } from './commands/join.ts'
import { keyCommand } from './commands/key.ts'
import { keygenCommand } from './commands/keygen.ts'
import { listenCommand } from './commands/listen.ts'
import { mcpCommand } from './commands/mcp.ts'
import { meshCommand } from './commands/mesh.ts'
import { peersCommand } from './commands/peers.ts'
import { poolCommand } from './commands/pool.ts'
import { requestCommand } from './commands/request.ts'
import { sendCommand } from './commands/send.ts'
import { shardCommand } from './commands/shard.ts'
import { spaceCommand } from './commands/space.ts'
import { stateCommand } from './commands/state.ts'
import { statusCommand } from './commands/status.ts'
import { upCommand } from './commands/up.ts'
import { endings } from './exit-codes.ts'
import { platformScreens, type Screens } from './output.ts'
import { eachCommand } from './program-tree.ts'
import { variables } from './settings.ts'
import { examples, type Run } from './shell.ts'

/** What commander says itself, help and usage errors, goes to `screens`. */
export function sealpost(run: Run, { out, err }: Screens = platformScreens): Command {
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
  program.commandsGroup('Begin:')
  for (const make of [upCommand, keygenCommand, joinCommand, inviteCommand]) program.addCommand(make(run))
  program.commandsGroup('Messages:')
  for (const make of [
    peersCommand,
    sendCommand,
    groupCommand,
    poolCommand,
    requestCommand,
    listenCommand,
    chatCommand,
    mcpCommand,
  ])
    program.addCommand(make(run))
  program.commandsGroup('State and history:')
  for (const make of [spaceCommand, stateCommand, historyCommand]) program.addCommand(make(run))
  program.commandsGroup('Look after it:')
  for (const make of [
    statusCommand,
    consentCommand,
    deviceCommand,
    keyCommand,
    doctorCommand,
    adminCommand,
    deadCommand,
    dbCommand,
    shardCommand,
    meshCommand,
  ])
    program.addCommand(make(run))
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
  'sealpost invite create                       a line for somebody to join with',
  'sealpost join sealpost1:…                    what they do with it',
  'sealpost chat bob',
  'git diff | sealpost send bob',
  "sealpost listen --exec './review.sh'",
)}

Environment:
${aligned(variables.map(({ name, meaning }) => [name, meaning.replaceAll('`', '')]))}

Exit codes:
${aligned(endings.map(({ name, exitCode, meaning }) => [String(exitCode), `${name.replace('_', ' ')}: ${meaning}`]))}`
