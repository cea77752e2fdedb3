/** Small JSON files of a profile: private to their owner, and whole or not there at all. */
import { chmod, open, readFile, rename } from 'node:fs/promises'
import { OperatingError } from '@sealpost/std'

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
