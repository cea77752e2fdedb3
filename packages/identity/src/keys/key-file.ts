/**
 * Keys on disk, for Node and Bun: JSON with a format, a version and a kind, readable by its owner only, and locked with a
 * passphrase if wanted. Of the signing key the seed is kept and the public key beside it, so that a damaged file is
 * noticed. Error messages name the path and never anything of the contents.
 */
import { type FileHandle, open, rename, unlink } from 'node:fs/promises'
import { platform } from 'node:os'
import { dirname } from 'node:path'
import { OperatingError } from '@sealpost/std'
import { ready } from '../sodium.ts'
import { isLocked, type KeyFile, type LockedKeyFile, lockedText, plainText, readText, unlock } from './key-file-text.ts'
import { type PassphraseCost, USUAL_COST } from './passphrase.ts'

export type {
  BrokerKeyFile,
  FormerBoxKeys,
  KeyFile,
  KeyFileEnrolment,
  PeerKeyFile,
} from './key-file-text.ts'
export {
  beginBoxKeyRotation,
  beginIdentityRotation,
  completeBoxKeyRotation,
} from './key-rotation.ts'

/** `warning`: the file's mode lets others than its owner at it. Mounted secrets are like that, so the caller decides. */
export interface KeyFileRead {
  readonly contents: KeyFile
  readonly isLocked: boolean
  readonly warning: { readonly code: 'key_file_exposed'; readonly message: string } | null
}

export interface KeyFileLock {
  readonly passphrase: string
  /** Default: 64 MiB and 3 passes. */
  readonly cost?: PassphraseCost
}

/**
 * Creates the file with mode 0600 and syncs it. What exists at the path, a link included, is left as it is.
 * @throws OperatingError `key_file_exists`, `key_file_unwritable`
 */
export async function writeKeyFile(path: string, contents: KeyFile, lock: KeyFileLock | null = null): Promise<void> {
  await create(path, await textOf(contents, lock))
}

/**
 * Puts other contents in the place of a key file, whole or not at all; synced when it returns. One program at a time.
 * @throws OperatingError `key_file_unwritable`
 */
export async function replaceKeyFile(path: string, contents: KeyFile, lock: KeyFileLock | null = null): Promise<void> {
  const text = await textOf(contents, lock)
  const beside = `${path}.next`
  await unlink(beside).catch(() => undefined) // of a program that died here: nobody relies on it yet
  await create(beside, text)
  try {
    await rename(beside, path)
    await syncFolder(dirname(path))
  } catch (cause) {
    throw new OperatingError('key_file_unwritable', `The key file at ${path} can't be replaced.`, { cause })
  }
}

/**
 * `passphrase` is asked for when the file is locked.
 * @throws OperatingError `key_file_missing`, `key_file_unreadable`, `key_file_malformed`; `key_file_locked` without a
 *   passphrase, `passphrase_wrong`
 */
export async function readKeyFile(path: string, passphrase?: () => string | Promise<string>): Promise<KeyFileRead> {
  await ready()
  const { text, mode } = await readWholeText(path)
  const found = readText(text)
  if (!found) throw new OperatingError('key_file_malformed', `The file at ${path} is no key file of this version.`)
  const warning = isExposed(mode) ? exposure(path) : null
  if (!isLocked(found)) return { contents: found, isLocked: false, warning }
  return { contents: await unlocked(path, found, passphrase), isLocked: true, warning }
}

const FILE_BYTES_MAX = 65_536

function textOf(contents: KeyFile, lock: KeyFileLock | null): string | Promise<string> {
  return lock ? lockedText(contents, lock.passphrase, lock.cost ?? USUAL_COST) : plainText(contents)
}

async function unlocked(
  path: string,
  locked: LockedKeyFile,
  passphrase: (() => string | Promise<string>) | undefined,
): Promise<KeyFile> {
  if (!passphrase) throw new OperatingError('key_file_locked', `The key file at ${path} is locked with a passphrase.`)
  const contents = await unlock(locked, await passphrase())
  if (contents) return contents
  throw new OperatingError('passphrase_wrong', `This passphrase does not open the key file at ${path}.`)
}

async function create(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx', 0o600).catch((cause) => {
    throw codeOf(cause) === 'EEXIST'
      ? new OperatingError('key_file_exists', `There is a file at ${path} already; keys are never overwritten.`)
      : new OperatingError('key_file_unwritable', `No key file can be created at ${path}.`, { cause })
  })
  try {
    await file.writeFile(text)
    await file.sync()
  } catch (cause) {
    await unlink(path) // half a key file would bar the next attempt
    throw new OperatingError('key_file_unwritable', `The key file at ${path} can't be written.`, { cause })
  } finally {
    await file.close()
  }
}

/** Windows opens no folders. */
async function syncFolder(path: string): Promise<void> {
  if (platform() === 'win32') return
  const folder = await open(path, 'r')
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

async function readWholeText(path: string): Promise<{ text: string; mode: number }> {
  const unreadable = (cause: unknown) =>
    new OperatingError('key_file_unreadable', `The key file at ${path} can't be read.`, { cause })
  const file = await open(path, 'r').catch((cause) => {
    if (codeOf(cause) !== 'ENOENT') throw unreadable(cause)
    throw new OperatingError('key_file_missing', `There is no key file at ${path}.`, { cause })
  })
  try {
    return await readWhole(file)
  } catch (cause) {
    throw unreadable(cause)
  } finally {
    await file.close()
  }
}

async function readWhole(file: FileHandle): Promise<{ text: string; mode: number }> {
  const { mode, size } = await file.stat()
  return { text: size > FILE_BYTES_MAX ? '' : await file.readFile('utf8'), mode }
}

function codeOf(cause: unknown): unknown {
  return (cause as { code?: unknown } | null)?.code
}

/** Windows has no such modes. */
function isExposed(mode: number): boolean {
  return platform() !== 'win32' && (mode & 0o077) !== 0
}

function exposure(path: string) {
  return {
    code: 'key_file_exposed',
    message: `The key file at ${path} is open to others than its owner: chmod 600 it, and think of the key as known.`,
  } as const
}
