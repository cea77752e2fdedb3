/**
 * Manages the folder of an embedded server:
 *
 * - `cluster/`: PostgreSQL's data directory. It is complete or absent: initdb fills `cluster.new-…/cluster`, which is
 *   then renamed. If several processes do this at the same time, one succeeds.
 * - `password`: the random password of its account `sealpost`, mode 0600. The file is renamed into place after the
 *   cluster.
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
  rmdir,
  writeFile,
} from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { OperatingError } from '@sealpost/std'
import { LEFTOVER_AFTER_MS, removeLeftovers } from './archive.ts'
import type { Binaries } from './programs.ts'
import { type Account, runProgram } from './programs.ts'

export const SUPERUSER = 'sealpost'
const DESCRIPTOR = 3

export interface DataCluster {
  folder: string
  password: string
  path: string
  /**
   * The descriptor that PostgreSQL must inherit for this path, because the server's account may not reach root's folder
   * (below a 0700 home).
   */
  descriptor: number | undefined
  close(): Promise<void>
}

export interface ClusterOptions {
  binaries: Binaries
  account: Account
  /** Additional arguments for initdb. */
  initdbArgs: string[]
}

/** Opens or creates the cluster in `folder`. */
export async function openCluster(folder: string, options: ClusterOptions): Promise<DataCluster> {
  const { binaries, account } = options
  const top = resolve(folder)
  const outermost = await mkdir(top, { recursive: true, mode: 0o700 }).catch(({ code }: NodeJS.ErrnoException) => {
    throw unusable(top, `can't be created (${code})`)
  })
  const entries = await readdir(top)
  if (!entries.includes('cluster')) {
    const foreign = entries.filter((entry) => entry !== 'password' && !entry.startsWith('cluster.new-'))
    if (foreign.length > 0) throw unusable(top, 'is neither empty nor a folder of an embedded PostgreSQL')
    try {
      await createCluster(top, options)
    } catch (error) {
      if (outermost) await removeEmpty(top, resolve(outermost))
      throw error
    }
  } else if (!entries.includes('password')) await placePassword(top)
  const cluster = join(top, 'cluster')
  const [major, password] = await Promise.all([join(cluster, 'PG_VERSION'), join(top, 'password')].map(readTrimmed))
  if (major === undefined || password === undefined)
    throw unusable(top, 'is neither empty nor a folder of an embedded PostgreSQL')
  if (major !== binaries.version.split('.')[0]) {
    throw unusable(top, `was created by PostgreSQL ${major}, and the embedded version is ${binaries.version}`)
  }
  await clearStaleLock(cluster)
  await removeLeftovers(top, isUnfinished)
  return { folder: cluster, password, ...(await accessTo(cluster, account)) }
}

/** Removes the empty folders from `inner` to `outer`, which this process created. */
async function removeEmpty(inner: string, outer: string): Promise<void> {
  for (let path = inner; path.length >= outer.length; path = dirname(path)) {
    const isRemoved = await rmdir(path).then(
      () => true,
      () => false, // another process uses it
    )
    if (!isRemoved) return
  }
}

/** Selects what killed first starts left. */
const isUnfinished = (name: string, ageMs: number): boolean =>
  name.startsWith('cluster.new-') && ageMs > LEFTOVER_AFTER_MS

const readTrimmed = (path: string): Promise<string | undefined> =>
  readFile(path, 'utf8').then(
    (text) => text.trim(),
    () => undefined,
  )

/** Returns the state from PostgreSQL's lock file, if there is one. */
export async function readLock(cluster: string): Promise<{ pid: number; status: string } | undefined> {
  const lines = (await readFile(join(cluster, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n')
  const pid = Number(lines[0])
  return pid > 0 ? { pid, status: lines[7]?.trim() ?? '' } : undefined
}

async function createCluster(top: string, { binaries, account, initdbArgs }: ClusterOptions): Promise<void> {
  const fresh = await mkdtemp(join(top, 'cluster.new-'))
  const password = randomBytes(24).toString('base64url')
  const made = join(fresh, 'cluster')
  await mkdir(made, { mode: 0o700 })
  const passwordFile = join(fresh, 'password')
  await writeFile(passwordFile, `${password}\n`, { mode: 0o600 })
  if (account.owner)
    for (const path of [fresh, passwordFile, made]) await chown(path, account.owner.uid, account.owner.gid)
  if (account.owner && !(await readdir(top)).includes('cluster')) await chmod(top, 0o711) // the server's account must reach the folder
  const { path, descriptor, close } = await accessTo(fresh, account)
  const args = ['--auth=scram-sha-256', `--username=${SUPERUSER}`, `--pwfile=${path}/password`, '--encoding=UTF8']
  const locale = ['--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--no-instructions']
  const result = await runProgram(
    account,
    [binaries.initdb, '-D', `${path}/cluster`, ...args, ...locale, ...initdbArgs],
    {
      environment: binaries.environment,
      descriptor,
    },
  )
  await close()
  if (result.code !== 0) {
    await rm(fresh, { recursive: true, force: true })
    const lines = result.output.trim().split('\n')
    const reason = lines.findLast((line) => /error|fatal/i.test(line)) ?? lines.at(-1)!
    throw unusable(
      top,
      `could not be initialized as a database cluster: ${reason.replace(/^.*(?:error|fatal): +/i, '')}`,
    )
  }
  const isFirst = await rename(made, join(top, 'cluster')).then(
    () => true,
    () => false, // another process won the race; keep its cluster
  )
  await placePassword(top, isFirst ? basename(fresh) : undefined)
  await rm(fresh, { recursive: true, force: true })
}

/** Renames the password file into place, even after an earlier process ended halfway. */
async function placePassword(top: string, owner?: string): Promise<void> {
  const folders = owner ? [owner] : (await readdir(top)).filter((name) => name.startsWith('cluster.new-'))
  for (const folder of folders) {
    const isPublished = (await readdir(join(top, folder)).catch(() => ['cluster'])).join() === 'password'
    if (isPublished) await rename(join(top, folder, 'password'), join(top, 'password')).catch(() => undefined)
  }
}

async function accessTo(folder: string, account: Account): Promise<Pick<DataCluster, 'path' | 'descriptor' | 'close'>> {
  const isReachable = !account.owner || (await runProgram(account, ['test', '-w', folder])).code === 0
  if (isReachable) return { path: folder, descriptor: undefined, close: () => Promise.resolve() }
  const opened = await open(folder, 'r')
  return { path: `/proc/self/fd/${DESCRIPTOR}`, descriptor: opened.fd, close: () => opened.close() }
}

/**
 * Removes an ended server's lock file. PostgreSQL takes any process of its account with the recorded id for a server,
 * so that a reused id would prevent every start. It still detects leftover backends by its shared memory.
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
    // On EPERM, another account owns the process, so it is not our server.
    return (error as NodeJS.ErrnoException).code === 'EPERM' && process.getuid?.() === 0
  }
  const workingFolder = await realpath(`/proc/${pid}/cwd`).catch(() => undefined)
  // Without /proc (macOS), trust the id, as PostgreSQL does.
  return workingFolder === undefined ? true : workingFolder === (await realpath(cluster))
}

export function inUse(cluster: string, pid: number): OperatingError {
  const sentence = `A running PostgreSQL (process ${pid}) uses ${resolve(cluster, '..')}; stop it first`
  return new OperatingError('embedded_in_use', sentence)
}

export function unusable(folder: string, reason: string): OperatingError {
  return new OperatingError('embedded_folder_unusable', `The folder ${basename(folder)} (${folder}) ${reason}`)
}
