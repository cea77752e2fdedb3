/** Reads attachments from files and saves them to files. */
import { constants } from 'node:fs'
import { type FileHandle, mkdir, open, readFile, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Attachment } from '@sealpost/identity'
import type { Millis } from '@sealpost/std'
import { SealpostError } from '../../errors.ts'
import { type StoreLock, tryLockStore } from '../../stores/file/lock.ts'
import { type Attachments, type DownloadOptions, plainBytes } from '../attachments.ts'
import type { AttachmentSource, UploadLog } from '../upload.ts'

const READ_BYTES = 256 * 1024

/**
 * Reads a file for an upload. @throws file system errors
 * @example const sent = await files.upload(await fileSource('plan.pdf'), { to: ben, name: 'plan.pdf' })
 */
export async function fileSource(path: string): Promise<AttachmentSource> {
  const file = await open(path, 'r')
  try {
    const { size } = await file.stat()
    return { bytes: size, stream: () => streamFile(path, size) }
  } finally {
    await file.close()
  }
}

async function* streamFile(path: string, end: number): AsyncGenerator<Uint8Array> {
  const file = await open(path, 'r')
  try {
    yield* readFrom(file, end)
  } finally {
    await file.close()
  }
}

async function* readFrom(file: FileHandle, end: number): AsyncGenerator<Uint8Array> {
  const buffer = new Uint8Array(READ_BYTES)
  for (let at = 0; at < end; ) {
    const { bytesRead } = await file.read(buffer, 0, Math.min(READ_BYTES, end - at), at)
    if (bytesRead === 0) return
    yield buffer.subarray(0, bytesRead)
    at += bytesRead
  }
}

export interface SaveOptions extends Omit<DownloadOptions, 'from'> {
  readonly folder: string
}

/**
 * Downloads a file into a folder under its own name. Never overwrites another file, and only a complete file has its
 * final name. The download resumes from the `.sealpost-….part` file that an earlier process left there. If another call
 * or process is saving the same file into the folder, waits for it, and returns its path.
 * @returns the path. @throws file system errors; SealpostError `part_in_use`, and the errors of `Attachments.download`
 * @example const path = await saveAttachment(files, attachment, { folder: 'received' })
 */
export async function saveAttachment(
  attachments: Attachments,
  attachment: Attachment,
  { folder, ...options }: SaveOptions,
): Promise<string> {
  await mkdir(folder, { recursive: true })
  const part = join(folder, `.sealpost-${attachment.id}.part`)
  for (;;) {
    const file = await openPart(part)
    try {
      const lock = await lockPart(part, file, options.signal)
      try {
        const isOurs = await isAt(part, file)
        const path = isOurs
          ? await complete({ part, file, folder }, attachments, attachment, options)
          : await findSaved(file, folder, attachment)
        if (path !== null) return path
      } finally {
        await lock.release()
      }
    } finally {
      await file.close()
    }
  }
}

type Fetching = Omit<DownloadOptions, 'from'>

interface OpenPart {
  readonly part: string
  readonly file: FileHandle
  readonly folder: string
}

function openPart(part: string): Promise<FileHandle> {
  const { O_RDWR, O_CREAT, O_NOFOLLOW } = constants
  return open(part, O_RDWR | O_CREAT | (O_NOFOLLOW ?? 0), 0o600)
}

async function complete(
  { part, file, folder }: OpenPart,
  attachments: Attachments,
  attachment: Attachment,
  options: Fetching,
): Promise<string> {
  await fetchInto(file, attachments, attachment, options).catch((error) => {
    if (error instanceof SealpostError && error.code === 'part_differs')
      return restart(file, attachments, attachment, options)
    throw error
  })
  await file.sync()
  return settle(part, folder, attachment.name)
}

const LOCK_EVERY_MS: Millis = 50
/** The time without a change of the file after which its holder counts as suspended or unreachable. */
const STALLED_MS: Millis = 60_000

/** Locks a part. Waits as long as another holder of the lock makes progress. */
async function lockPart(part: string, file: FileHandle, signal: AbortSignal | undefined): Promise<StoreLock> {
  let changedAtMs = performance.now()
  for (let { mtimeMs } = await file.stat(); ; ) {
    const lock = await tryLockStore(part)
    if (lock) return lock
    await delay(LOCK_EVERY_MS * (1 + Math.random()), undefined, { ...(signal && { signal }) })
    const now = await file.stat()
    if (now.mtimeMs !== mtimeMs) changedAtMs = performance.now()
    else if (performance.now() - changedAtMs > STALLED_MS) throw partInUse(part)
    mtimeMs = now.mtimeMs
  }
}

function partInUse(part: string): SealpostError {
  const text = `Another process is saving this file as ${part}, but made no progress for ${STALLED_MS / 1000} seconds.`
  return new SealpostError('part_in_use', text, { isRetryable: true })
}

/** Returns whether the open file is the one at the path. Its last holder may have renamed or deleted it. */
async function isAt(path: string, file: FileHandle): Promise<boolean> {
  const at = await stat(path, { bigint: true }).catch(() => null)
  const { dev, ino } = await file.stat({ bigint: true })
  return at?.dev === dev && at.ino === ino
}

/** Returns the final path of the file that another holder has completed; null if the file was moved or deleted. */
async function findSaved(file: FileHandle, folder: string, { name }: Attachment): Promise<string | null> {
  for (const each of fileNames(name)) {
    const path = join(folder, each)
    if (await isAt(path, file)) return path
    if (!(await stat(path).catch(() => null))) return null
  }
  return null
}

async function restart(
  file: FileHandle,
  attachments: Attachments,
  attachment: Attachment,
  options: Fetching,
): Promise<void> {
  await file.truncate(0)
  await fetchInto(file, attachments, attachment, options)
}

/** Writes bytes at their offset, so that concurrent downloads can share the file. */
async function fetchInto(
  file: FileHandle,
  attachments: Attachments,
  attachment: Attachment,
  options: Fetching,
): Promise<void> {
  const { size } = await file.stat()
  const whole = size >= attachment.bytes ? attachment.bytes : size - (size % plainBytes(attachment))
  await file.truncate(whole)
  const from = whole > 0 ? readFrom(file, whole) : undefined
  let at = whole
  for await (const bytes of attachments.download(attachment, { ahead: 1, ...options, from })) {
    await file.write(bytes, 0, bytes.length, at)
    at += bytes.length
  }
}

async function settle(part: string, folder: string, given: string): Promise<string> {
  for (const name of fileNames(given)) {
    const path = join(folder, name)
    if (!(await isReserved(path))) continue
    await rename(part, path)
    return path
  }
  throw new Error('there is always another name')
}

/** Creates an empty placeholder file if the name is free. Returns whether it was free. */
async function isReserved(path: string): Promise<boolean> {
  try {
    await (await open(path, 'wx', 0o600)).close()
    return true
  } catch (error) {
    if ((error as { code?: string }).code === 'EEXIST') return false
    throw error
  }
}

/** The maximum length of a saved file's name. */
const NAME_BYTES_MAX = 200
/**
 * Matches separators, characters that are special in a shell or on Windows, control characters, and marks that change
 * the direction of reading.
 */
const UNSAFE = /[/\\:*?"<>|]|[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu
/** Matches Windows device names, with any extension. */
const DEVICE = /^(con|prn|aux|nul|com\d|lpt\d)(\.|$)/i

/**
 * Returns a safe name for a file: at most 200 bytes, never hidden, never a path and never empty.
 * @example const name = safeFileName('../plan.pdf') // plan.pdf
 */
export function safeFileName(given: string): string {
  const cleaned = given
    .normalize('NFC')
    .replace(UNSAFE, '_')
    .replace(/^[.\s-]+/, '')
    .replace(/[.\s]+$/, '')
  const named = cleaned === '' || DEVICE.test(cleaned) ? `file_${cleaned}`.replace(/_$/, '') : cleaned
  return shortened(named)
}

/** Yields `report.pdf`, `report (2).pdf`, … @internal */
export function* fileNames(given: string): Generator<string> {
  const name = safeFileName(given)
  yield name
  const [stem, ending] = parts(name)
  for (let n = 2; ; n++) yield `${stem} (${n})${ending}`
}

function shortened(name: string): string {
  const [stem, ending] = parts(name)
  let kept = [...stem]
  while (Buffer.byteLength(kept.join('') + ending) > NAME_BYTES_MAX) kept = kept.slice(0, -1)
  return kept.join('') + ending
}

function parts(name: string): [stem: string, ending: string] {
  const dot = name.lastIndexOf('.')
  return dot > 0 && name.length - dot <= 12 ? [name.slice(0, dot), name.slice(dot)] : [name, '']
}

/** Keeps the log of an upload in a file that only its owner can read. */
export class FileUploadLog implements UploadLog {
  readonly #path: string

  constructor(path: string) {
    this.#path = path
  }

  async read(): Promise<Uint8Array | null> {
    try {
      return await readFile(this.#path)
    } catch (error) {
      if ((error as { code?: string }).code === 'ENOENT') return null
      throw error
    }
  }

  async start(bytes: Uint8Array): Promise<void> {
    const fresh = `${this.#path}.new`
    await written(fresh, 'w', bytes)
    await rename(fresh, this.#path)
  }

  append(bytes: Uint8Array): Promise<void> {
    return written(this.#path, 'a', bytes)
  }

  /** Deletes the log. Call once the message that refers to the file is sent. */
  remove(): Promise<void> {
    return rm(this.#path, { force: true })
  }
}

async function written(path: string, flags: 'w' | 'a', bytes: Uint8Array): Promise<void> {
  const file = await open(path, flags, 0o600)
  try {
    await file.writeFile(bytes)
    await file.datasync()
  } finally {
    await file.close()
  }
}
