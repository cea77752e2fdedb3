/** One run of the command line, from its words to its exit code. */
import { SealpostError } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import { CommanderError } from 'commander'
import { type GlobalOptions, runIn, type Shell } from './completion.ts'
import { exitCodeOf, exitReasonOf } from './exit-codes.ts'
import { Output, type OutputStreams, platformStreams } from './output.ts'
import { Passphrase, Profile, platformTerminal } from './profile/profile.ts'
import { sealpostFor } from './program.ts'
import type { Settings } from './settings.ts'

export interface CliParts {
  readonly settings: Settings
  /** Fires when the command is to end. */
  readonly signal: AbortSignal
  readonly screens?: OutputStreams
}

/** @returns the exit code */
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
  // commander has said it already, or was asked for help.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : exitCodeOf('usage')
  if (!isCoded(error)) {
    if (isBrokenPipe(error)) return exitCodeOf('failure')
    output.fail('internal', `This is a fault of the program itself: ${(error as Error).stack ?? String(error)}`)
    return exitCodeOf('failure')
  }
  const ending = exitReasonOf(error.code)
  if (ending !== 'interrupted') output.fail(error.code, error.message)
  return exitCodeOf(ending)
}

function isCoded(error: unknown): error is OperatingError | SealpostError {
  return error instanceof OperatingError || error instanceof SealpostError
}

/** The reader of our output has closed it, as `head` does. */
function isBrokenPipe(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === 'EPIPE'
}
