/**
 * The folder of an embedded server:
 *
 * - `cluster/`: the data directory of PostgreSQL. It appears whole or not at all: initdb fills another folder, which
 *   is then renamed.
 * - `password`: of the account `sealpost` in it, 0600, made at random with the cluster.
 */
import { randomBytes } from 'node:crypto'
import {
  chmod,
  chown,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  realpath,
  rename,
  rm,
  writeFile,
} from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import { OperatingError } from '@sealpost/std'
import { type Account, runProgram } from './embedded-account.ts'
import type { Binaries } from './embedded-binaries.ts'

export const SUPERUSER = 'sealpost'
const DESCRIPTOR = 3

export interface Cluster {
  folder: string
  password: string
  /**
   * The path to give to PostgreSQL, and the descriptor it must inherit for it. As root the folder may lie where the
   * server's account can't go (a checkout below a 0700 home); an inherited descriptor leads there all the same.
   */
  path: string
  descriptor: number | undefined
  close(): Promise<void>
}

export interface Making {
  binaries: Binaries
  account: Account
  /** Further words for initdb. */
  initdbWords: string[]
}

/** Opens the cluster in `folder`, making it when the folder is new or empty. */
export async function openCluster(folder: string, making: Making): Promise<Cluster> {
  const { binaries, account } = making
  const top = resolve(folder)
  await mkdir(top, { recursive: true, mode: 0o700 })
  const entries = await readdir(top)
  const isOurs = entries.includes('cluster') && entries.includes('password')
  if (!isOurs) {
    const foreign = entries.filter((entry) => entry !== 'password' && !entry.startsWith('cluster.new-'))
    if (foreign.length > 0) throw unusable(top, 'is neither empty nor a folder of an embedded PostgreSQL')
    await makeCluster(top, making)
  }
  const cluster = join(top, 'cluster')
  const major = (await readFile(join(cluster, 'PG_VERSION'), 'utf8')).trim()
  if (major !== binaries.version.split('.')[0]) {
    throw unusable(top, `was made by PostgreSQL ${major}, and the embedded one is ${binaries.version}`)
  }
  await clearStaleLock(cluster)
  const password = (await readFile(join(top, 'password'), 'utf8')).trim()
  return { folder: cluster, password, ...(await entrance(cluster, account)) }
}

/** What PostgreSQL itself has written about its state, or undefined. */
export async function readLock(cluster: string): Promise<{ pid: number; status: string } | undefined> {
  const lines = (await readFile(join(cluster, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n')
  const pid = Number(lines[0])
  return pid > 0 ? { pid, status: lines[7]?.trim() ?? '' } : undefined
}

async function makeCluster(top: string, { binaries, account, initdbWords }: Making): Promise<void> {
  const fresh = await mkdtemp(join(top, 'cluster.new-'))
  const password = randomBytes(24).toString('base64url')
  const passwordFile = join(fresh, 'password')
  await writeFile(passwordFile, `${password}\n`, { mode: 0o600 })
  const made = join(fresh, 'cluster')
  await mkdir(made, { mode: 0o700 })
  if (account.owner)
    for (const path of [fresh, passwordFile, made]) await chown(path, account.owner.uid, account.owner.gid)
  if (account.owner && !(await readdir(top)).includes('cluster')) await chmod(top, 0o711) // its account passes through
  const { path, descriptor, close } = await entrance(fresh, account)
  const words = ['--auth=scram-sha-256', `--username=${SUPERUSER}`, `--pwfile=${path}/password`, '--encoding=UTF8']
  const locale = ['--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--no-instructions']
  const answer = await runProgram(
    account,
    [binaries.initdb, '-D', `${path}/cluster`, ...words, ...locale, ...initdbWords],
    {
      environment: binaries.environment,
      descriptor,
    },
  )
  await close()
  if (answer.code !== 0) {
    await rm(fresh, { recursive: true, force: true })
    const reason = answer.output
      .trim()
      .split('\n')
      .filter((line) => /error|fatal/i.test(line))
      .at(-1)
    throw unusable(top, `could not be made a database cluster: ${reason ?? 'initdb failed'}`)
  }
  await rename(passwordFile, join(top, 'password'))
  await rename(made, join(top, 'cluster'))
  await rm(fresh, { recursive: true })
}

async function entrance(folder: string, account: Account): Promise<Pick<Cluster, 'path' | 'descriptor' | 'close'>> {
  const isReachable = !account.owner || (await runProgram(account, ['test', '-w', folder])).code === 0
  if (isReachable) return { path: folder, descriptor: undefined, close: () => Promise.resolve() }
  const opened = await open(folder, 'r')
  return { path: `/proc/self/fd/${DESCRIPTOR}`, descriptor: opened.fd, close: () => opened.close() }
}

/**
 * PostgreSQL takes any living process of its account with the recorded number for a running server, so after a restart
 * of a container a number used again would bar it for ever. Its shared memory still guards against leftover backends.
 */
async function clearStaleLock(cluster: string): Promise<void> {
  const lock = await readLock(cluster)
  if (!lock) return
  if (await isServerOf(lock.pid, cluster)) throw inUse(cluster, lock.pid)
  await rm(join(cluster, 'postmaster.pid'), { force: true })
}

async function isServerOf(pid: number, cluster: string): Promise<boolean> {
  try {
    process.kill(pid, 0)
  } catch (error) {
    // EPERM: alive, and somebody else's. Ours would have the folder's own account, which we are or may signal.
    return (error as NodeJS.ErrnoException).code === 'EPERM' && process.getuid?.() === 0
  }
  const workingFolder = await realpath(`/proc/${pid}/cwd`).catch(() => undefined)
  // Without /proc (macOS) believe the number, as PostgreSQL does.
  return workingFolder === undefined ? true : workingFolder === (await realpath(cluster))
}

export function inUse(cluster: string, pid: number): OperatingError {
  const sentence = `${resolve(cluster, '..')} is in use by a running PostgreSQL (process ${pid}); stop that one first`
  return new OperatingError('embedded_in_use', sentence)
}

export function unusable(folder: string, reason: string): OperatingError {
  return new OperatingError('embedded_folder_unusable', `The folder ${basename(folder)} (${folder}) ${reason}`)
}
