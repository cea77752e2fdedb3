import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { lockStore } from './lock.ts'

let folder: string
let path: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-test-'))
  path = join(folder, 'peer.store')
})
afterEach(() => rm(folder, { recursive: true }))

/** Writes a lock of another process. Parts not given are those of this process. */
async function leaveLock(parts: { pid?: number; started?: number; host?: string }): Promise<string> {
  const own = await lockStore(path)
  const [name] = await readdir(folder)
  await own.release()
  const [, pid, started, host] = /lock-(\d+)-(\d+)-(.+)$/.exec(name!)!
  const { pid: otherPid = pid, started: otherStart = started, host: otherHost = host } = parts
  const lock = join(folder, `${basename(path)}.lock-${otherPid}-${otherStart}-${otherHost}`)
  await writeFile(lock, '')
  return lock
}

const isHeld = { code: 'store_in_use' }

describe('a lock', () => {
  test('is held against this process too, and free after its release', async () => {
    const lock = await lockStore(path)
    await expect(lockStore(path)).rejects.toMatchObject(isHeld)
    await lock.release()
    await (await lockStore(path)).release()
    expect(await readdir(folder)).toEqual([])
  })

  test('of a dead process is taken over', async () => {
    await leaveLock({ pid: GONE })
    const lock = await lockStore(path)
    expect(await readdir(folder)).toHaveLength(1)
    await lock.release()
  })

  test('of a running process is held, and the error names the file', async () => {
    const pid = process.ppid
    const left = await leaveLock({ pid, started: await startOf(pid) })
    const error = await lockStore(path).catch((error) => error)
    expect(error).toMatchObject(isHeld)
    expect(error.message).toContain(left)
    expect(await readdir(folder)).toEqual([basename(left)])
  })

  test('of a former process with the same number is taken over', async () => {
    await leaveLock({ started: 1 })
    await (await lockStore(path)).release()
    expect(await readdir(folder)).toEqual([])
  })

  test('of another host is held', async () => {
    await leaveLock({ host: 'elsewhere', pid: GONE })
    await expect(lockStore(path)).rejects.toMatchObject(isHeld)
  })

  test('is given to at most one of ten concurrent callers', async () => {
    const outcomes = await Promise.allSettled(Array.from({ length: 10 }, () => lockStore(path)))
    const locks = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []))
    expect(locks.length).toBe(1)
    await locks[0]!.release()
  })

  test('fails without its folder', async () => {
    await expect(lockStore(join(folder, 'absent', 'peer.store'))).rejects.toMatchObject({ code: 'store_failed' })
  })
})

/** A process id that can't exist: Linux assigns none above 2 ** 22. */
const GONE = 2 ** 22 + 1

async function startOf(pid: number): Promise<number> {
  const stat = await Bun.file(`/proc/${pid}/stat`).text()
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19])
}
