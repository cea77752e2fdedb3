/** Finds the command with which another program can start the program that runs now. */
import { realpathSync } from 'node:fs'
import { join, posix, win32 } from 'node:path'
import type { EnvironmentVariables } from '../../settings.ts'

const MAIN = join(import.meta.dirname, '../../main.ts')

export interface LaunchCommand {
  readonly command: string
  readonly args: readonly string[]
}

export interface LaunchWithEnvironment extends LaunchCommand {
  readonly env: Readonly<Record<string, string>>
}

export interface RunningProgram {
  readonly platform: NodeJS.Platform
  readonly execPath: string
  /** The source file that Bun runs; null for the compiled program. */
  readonly main: string | null
  readonly searchPath: string
  readonly version: string
  /** Returns the target of a file, or null if there is no such file. */
  readonly resolve: (path: string) => string | null
}

export function runningProgram(version: string, environment: EnvironmentVariables): RunningProgram {
  return {
    platform: process.platform,
    execPath: process.execPath,
    main: Bun.isStandaloneExecutable ? null : MAIN,
    searchPath: environment.PATH ?? environment.Path ?? '',
    version,
    resolve: (path) => {
      try {
        return realpathSync(path)
      } catch {
        return null
      }
    },
  }
}

/**
 * Returns the command. A portable command has names from the PATH instead of paths, if possible: a project shares its
 * files with other machines.
 */
export function launchCommand(program: RunningProgram, style: 'absolute' | 'portable'): LaunchCommand {
  const { execPath, main } = program
  const named = (path: string, name: string) => startable(style === 'portable' ? name : path, path)
  if (main !== null) return { command: stablePath(program, 'bun') ?? execPath, args: [main] }
  const npx = isFromNpx(execPath) ? onSearchPath(program, 'npx')[0] : undefined
  if (npx) return withArgs(named(npx, 'npx'), ['--yes', 'sealpost'])
  const [first] = onSearchPath(program, 'sealpost')
  // A package manager may have put the version into the path, so an update would break the path.
  const isVersioned = execPath.includes(program.version)
  if (first && (style === 'portable' || isVersioned)) return named(first, 'sealpost')
  return { command: stablePath(program, 'sealpost') ?? execPath, args: [] }
}

const withArgs = ({ command, args }: LaunchCommand, more: readonly string[]): LaunchCommand => ({
  command,
  args: [...args, ...more],
})

/** Windows starts a script, such as `npx.cmd`, only through `cmd`. */
const startable = (command: string, path: string): LaunchCommand =>
  path.endsWith('.cmd') ? { command: 'cmd', args: ['/c', command] } : { command, args: [] }

/** npx removes old packages from its cache, so no path in it is stable. */
const isFromNpx = (execPath: string): boolean => /[\\/]_npx[\\/]/.test(execPath)

/** Returns the PATH's entry that is this program, such as a link of Homebrew, which survives an update. */
function stablePath(program: RunningProgram, name: string): string | undefined {
  const own = program.resolve(program.execPath)
  return onSearchPath(program, name).find((path) => program.resolve(path) === own)
}

/** Returns the files of that name in the folders of the PATH, first match first. */
export function onSearchPath({ platform, searchPath, resolve }: RunningProgram, name: string): string[] {
  const path = platform === 'win32' ? win32 : posix
  const names = platform === 'win32' ? [`${name}.exe`, `${name}.cmd`] : [name]
  return searchPath
    .split(path.delimiter)
    .filter((folder) => path.isAbsolute(folder))
    .flatMap((folder) => names.map((each) => path.join(folder, each)))
    .filter((file) => resolve(file) !== null)
}

/** Returns the command as a line for a POSIX shell. On Windows, the line is also valid in cmd. */
export function shellLine({ command, args, env }: LaunchWithEnvironment, platform: NodeJS.Platform): string {
  const words = [command, ...args]
  // cmd and PowerShell have no such assignments: there, the variables of the account apply.
  if (platform === 'win32') return words.map((word) => quotedForWindows(word.replaceAll('\\', '/'))).join(' ')
  const assignments = Object.entries(env).map(([name, value]) => `${name}=${quoted(value)}`)
  return [...assignments, ...words.map(quoted)].join(' ')
}

const quoted = (word: string): string => (isPlain(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)

const quotedForWindows = (word: string): string => (isPlain(word) ? word : `"${word}"`)

const isPlain = (word: string): boolean => /^[\w@%+=:,./-]+$/.test(word)
