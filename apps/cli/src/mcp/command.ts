/** `sealpost mcp`: this profile as a server of the Model Context Protocol, for AI agents. */
import { Command } from 'commander'
import { maxAgeOption } from '../args.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'

interface McpCommandOptions {
  readonly to?: readonly string[]
  readonly send: boolean
  readonly files?: string
  readonly maxAge?: number
}

export function mcpCommand(run: RunAction): Command {
  return new Command('mcp')
    .description('serve an AI agent over the Model Context Protocol on stdin and stdout; its client starts this')
    .option('--to <NAME...>', 'who the agent may write to, by names, fingerprints or keys; without it everybody')
    .option('--no-send', 'offer only tools by which no word leaves')
    .option('--files <FOLDER>', 'save files of messages there; default: the folder "files" of the profile')
    .addOption(maxAgeOption())
    .addHelpText(
      'after',
      examples(
        'sealpost mcp --profile agent',
        'sealpost mcp --to alice bob',
        'sealpost mcp --no-send --files ~/Downloads',
      ),
    )
    .action(run(mcp))
}

async function mcp(shell: Shell, { to, send, files, maxAge }: McpCommandOptions): Promise<void> {
  // Loaded here: no other command should wait for the SDK of the protocol.
  const { serveMcp } = await import('./serve.ts')
  await serveMcp(shell, { recipients: to ?? null, canSend: send, folder: files ?? null, maxAgeSeconds: maxAge })
}
