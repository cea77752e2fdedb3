/** Small JSON files of a profile: private to their owner, and whole or not there at all. */
import { chmod, open, readFile, rename } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { lockStore, type StoreLock } from '@sealpost/sdk/file-store'
import { type Millis, OperatingError } from '@sealpost/std'

const TURN_WITHIN_MS: Millis = 10_000
const TURN_EVERY_MS: Millis = 20

/**
 * @returns undefined when there is no such file
 * @throws OperatingError `file_unreadable`, `file_malformed`
 */
export async function readJsonFile<T>(path: string, isWhole: (value: unknown) => value is T): Promise<T | undefined> {
  const text = await readFile(path, 'utf8').catch((cause) => {
    if ((cause as { code?: string }).code === 'ENOENT') return undefined
    throw new OperatingError('file_unreadable', `The file at ${path} can't be read.`, { cause })
  })
  if (text === undefined) return undefined
  const value = parse(text)
  if (isWhole(value)) return value
  throw new OperatingError('file_malformed', `The file at ${path} is not one that this command wrote.`)
}

/** @throws OperatingError `file_unwritable` */
export async function writeJsonFile(path: string, value: object): Promise<void> {
  const fresh = `${path}.${process.pid}.new`
  try {
    const file = await open(fresh, 'w', 0o600)
    try {
      await file.writeFile(`${JSON.stringify(value, null, 2)}\n`)
      await file.sync()
    } finally {
      await file.close()
    }
    await chmod(fresh, 0o600) // one left by a crash keeps its own mode
    await rename(fresh, path)
  } catch (cause) {
    throw new OperatingError('file_unwritable', `The file at ${path} can't be written.`, { cause })
  }
}

/**
 * Changes a file as it stands now: one command after the other, so that none undoes what another one wrote.
 * @returns what stands in it then
 * @throws OperatingError as `readJsonFile` and `writeJsonFile`, and what `change` throws: the file is left as it was
 */
export async function updateJsonFile<T extends object>(
  path: string,
  isWhole: (value: unknown) => value is T,
  change: (value: T | undefined) => T,
): Promise<T> {
  const lock = await takeTurn(path)
  try {
    const changed = change(await readJsonFile(path, isWhole))
    await writeJsonFile(path, changed)
    return changed
  } finally {
    await lock.release()
  }
}

async function takeTurn(path: string): Promise<StoreLock> {
  for (const lateMs = performance.now() + TURN_WITHIN_MS; ; ) {
    try {
      return await lockStore(path)
    } catch (cause) {
      const isBusy = (cause as { code?: string }).code === 'store_in_use'
      if (!isBusy || performance.now() > lateMs)
        throw new OperatingError('file_unwritable', `The file at ${path} can't be written.`, { cause })
    }
    await delay(TURN_EVERY_MS * (1 + Math.random())) // of two that came at once both may have given way
  }
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined // told as malformed, with the path
  }
}
