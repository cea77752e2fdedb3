/** Locks a store, so that one process at a time has it open. */
import { open, readdir, readFile, rm } from 'node:fs/promises'
import { hostname, platform } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { SealpostError } from '../../errors.ts'

/**
 * A lock that allows one process per file. The name of a lock file next to the store identifies the holder. Every
 * process first creates its own lock and then looks for others, so if two start at the same time, neither can miss the
 * other; at worst, both give way.
 *
 * A lock is stale if its process is gone. The start time (where there is `/proc`) distinguishes the process from a
 * later one with the same number. A lock from another host can't be checked and counts as held, because the folder may
 * be shared. If that host was a container that is gone, delete the file by hand.
 * @internal
 */
export interface StoreLock {
  release(): Promise<void>
}

/** Identifies the host of a lock. Outside Linux, it is constant, because host names change with the network there. */
const HOST = platform() === 'linux' ? hostname() : 'local'

/** Locks the store at this path. @throws SealpostError `store_in_use`, `store_failed` @internal */
export async function lockStore(path: string): Promise<StoreLock> {
  const folder = dirname(path)
  const prefix = `${basename(path)}.lock-`
  const own = `${prefix}${process.pid}-${await processStartedAt(process.pid)}-${HOST}`
  await createLock(join(folder, own))
  const release = () => rm(join(folder, own), { force: true })
  for (const other of await readdir(folder)) {
    if (!other.startsWith(prefix) || other === own) continue
    const isHeld = await isAlive(other.slice(prefix.length))
    if (isHeld) await release()
    if (isHeld) throw inUse(join(folder, other))
    await rm(join(folder, other), { force: true })
  }
  return { release }
}

/** Like `lockStore`, but returns null if another process holds the lock. @throws SealpostError `store_failed` @internal */
export async function tryLockStore(path: string): Promise<StoreLock | null> {
  try {
    return await lockStore(path)
  } catch (error) {
    if (error instanceof SealpostError && error.code === 'store_in_use') return null
    throw error
  }
}

const TURN_WITHIN_MS = 10_000
const TURN_EVERY_MS = 10

/**
 * Like `lockStore`, but waits up to 10 s while another process holds the lock, for work that takes a moment.
 * @throws SealpostError `store_in_use`, `store_failed`
 * @internal
 */
export async function lockStoreInTurn(path: string): Promise<StoreLock> {
  for (const lateMs = performance.now() + TURN_WITHIN_MS; ; ) {
    try {
      return await lockStore(path)
    } catch (error) {
      const isBusy = error instanceof SealpostError && error.code === 'store_in_use'
      if (!isBusy || performance.now() > lateMs) throw error
    }
    await delay(TURN_EVERY_MS * (1 + Math.random())) // random, because two processes may both have given way
  }
}

/** Returns whether a process that runs holds the lock of the store at this path. @internal */
export async function isLockHeld(path: string): Promise<boolean> {
  const prefix = `${basename(path)}.lock-`
  const names = await readdir(dirname(path)).catch(() => [])
  for (const name of names) if (name.startsWith(prefix) && (await isAlive(name.slice(prefix.length)))) return true
  return false
}

async function createLock(path: string): Promise<void> {
  try {
    const file = await open(path, 'wx', 0o600)
    await file.close()
  } catch (cause) {
    // This process already holds the lock.
    if ((cause as { code?: unknown }).code === 'EEXIST') throw inUse(path)
    throw new SealpostError('store_failed', "Can't create a lock next to the file of this store.", { cause })
  }
}

function inUse(lock: string): SealpostError {
  return new SealpostError('store_in_use', `Another process has this store open. Its lock is ${lock}.`)
}

async function isAlive(holder: string): Promise<boolean> {
  const [, pid, started, host] = /^(\d+)-(\d+)-(.+)$/.exec(holder) ?? []
  if (host !== HOST || !isRunning(Number(pid))) return host !== HOST
  const startedNow = await processStartedAt(Number(pid))
  return startedNow === 0 || startedNow === Number(started)
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as { code?: unknown }).code !== 'ESRCH' // a process of another user is running too
  }
}

/** Returns when a process started, in ticks since boot; 0 if unknown. @internal */
export async function processStartedAt(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '') // no /proc, or the process has just ended
  // The second field, in brackets, is the program's name and may contain anything, so start after it.
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? 0)
}
