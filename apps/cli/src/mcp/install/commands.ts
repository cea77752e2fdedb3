/** Defines `sealpost mcp install` and `sealpost mcp uninstall`. */
import { Argument, Command } from 'commander'
import { examples, type RunAction } from '../../shell.ts'
import { type ClientName, clientNames } from './clients.ts'
import type { ApplyOptions, InstallOptions } from './install.ts'

/** Loads the parsers late, because that takes 40 ms of the start of `sealpost mcp`. */
const load = () => import('./install.ts')

const clientArgument = () => new Argument('<CLIENT>', 'the client').choices(clientNames)

export function installCommand(run: RunAction): Command {
  return new Command('install')
    .description(
      "Add this server, status hooks and a skill to a client's configuration. Shows the change and asks first.",
    )
    .addArgument(clientArgument())
    .option('--project', "configure the current folder's project instead of your account")
    .option('--as <NAME>', 'the name of the session that the client uses')
    .option('--no-hooks', 'add no hooks, which set your status to working and idle')
    .option('--no-skill', 'add no skill or rule, which describes to the agent how to treat messages')
    .option('--force', 'replace an existing configuration of Sealpost that this command did not write')
    .option('-y, --yes', 'do not ask')
    .option('--dry-run', 'print the change and make no change')
    .addHelpText(
      'after',
      `
The options of \`sealpost mcp\` go into the configuration, such as --to and --no-send. A backup of each changed file stays
beside the file.
${examples(
  'sealpost mcp install claude --profile agent',
  'sealpost mcp install codex --dry-run',
  'sealpost mcp install cursor --project --yes',
  'sealpost mcp install vscode --to alice bob',
)}`,
    )
    .action(
      run(async (shell, options: InstallOptions, name: ClientName) => (await load()).install(shell, options, name)),
    )
}

export function uninstallCommand(run: RunAction): Command {
  return new Command('uninstall')
    .description("Undo `sealpost mcp install` and keep every other change of the client's configuration")
    .addArgument(clientArgument())
    .option('--project', "undo the installation in the current folder's project")
    .option('-y, --yes', 'do not ask')
    .option('--dry-run', 'print the change and make no change')
    .addHelpText('after', examples('sealpost mcp uninstall claude', 'sealpost mcp uninstall cursor --project --yes'))
    .action(
      run(async (shell, options: ApplyOptions, name: ClientName) => (await load()).uninstall(shell, options, name)),
    )
}
