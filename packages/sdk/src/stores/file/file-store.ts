/**
 * A store in one file, for Node and Bun: `@sealpost/sdk/file-store`. Only its owner can read it; bodies of messages that
 * wait unsealed, since no session has been there yet, stand in it in clear.
 */
import { open, readdir, readFile, rm } from 'node:fs/promises'
import { hostname, platform } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { SealpostError } from '../../errors.ts'
import type { PeerStore } from '../store.ts'
import { nodeFiles, StoreJournal } from './journal.ts'

/**
 * Opens the store at this path, or makes one. Its folder must exist. Whatever was kept is kept through crashes of the
 * process and losses of power.
 * @throws SealpostError `store_in_use`, `store_corrupt`, `store_failed`
 */
export async function openFileStore(path: string): Promise<PeerStore> {
  const lock = await lockStore(path)
  try {
    const journal = await StoreJournal.open(nodeFiles, path)
    return {
      load: () => journal.load(),
      write: (changes) => journal.write(changes),
      close: () => journal.close().finally(lock.release),
    }
  } catch (error) {
    await lock.release()
    throw error
  }
}

/**
 * One process for each file: a lock file beside it whose name says who holds it. Everybody first makes a lock of its own
 * and then looks for others, so of two that come at once none sees the field empty; at worst both give way.
 *
 * A holder is gone when its process is, told apart from a later one of the same number by the time it was started (where
 * there is `/proc`). A lock from another host can't be judged and counts as held: hosts that share a folder, or a
 * container that is gone. Its file may then be removed by hand.
 */
export interface StoreLock {
  release(): Promise<void>
}

/** Elsewhere than on Linux names of hosts come and go with the network, and containers are rare. */
const HOST = platform() === 'linux' ? hostname() : 'local'

/** @throws SealpostError `store_in_use`, `store_failed` */
export async function lockStore(path: string): Promise<StoreLock> {
  const folder = dirname(path)
  const prefix = `${basename(path)}.lock-`
  const own = `${prefix}${process.pid}-${await startedAt(process.pid)}-${HOST}`
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

async function createLock(path: string): Promise<void> {
  try {
    const file = await open(path, 'wx', 0o600)
    await file.close()
  } catch (cause) {
    // This very process has it open already.
    if ((cause as { code?: unknown }).code === 'EEXIST') throw inUse(path)
    throw new SealpostError('store_failed', 'No lock can be made beside the file of this store.', { cause })
  }
}

function inUse(lock: string): SealpostError {
  return new SealpostError('store_in_use', `Another process has this store open. Its lock is ${lock}.`)
}

async function isAlive(holder: string): Promise<boolean> {
  const [, pid, started, host] = /^(\d+)-(\d+)-(.+)$/.exec(holder) ?? []
  if (host !== HOST || !isRunning(Number(pid))) return host !== HOST
  const startedNow = await startedAt(Number(pid))
  return startedNow === 0 || startedNow === Number(started)
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as { code?: unknown }).code !== 'ESRCH' // one of another user is running, too
  }
}

/** In ticks since the machine's start; 0 where that can't be had. */
async function startedAt(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '') // no /proc, or gone just now
  // The program's name stands second, in brackets, and may hold anything.
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? 0)
}
