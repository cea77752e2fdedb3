/** Files on their way out and in, for commands: by HTTP, beside whichever command holds the session. */
import { createHash } from 'node:crypto'
import { mkdir, realpath, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import type { GroupId, PeerKey } from '@sealpost/sdk'
import { FileUploadLog, fileSource, safeFileName, saveAttachment } from '@sealpost/sdk/attachment-files'
import { type Attachment, Attachments, attachmentText, type TransferProgress } from '@sealpost/sdk/attachments'
import { OperatingError } from '@sealpost/std'
import cliProgress from 'cli-progress'
import type { Shell } from '../completion.ts'
import { escapeName, type Output } from '../output.ts'
import { HTTP_PATIENCE_MS, meshPlaceOf } from '../state/open-state.ts'

export interface SentFile {
  /** The reference that the message is to carry. */
  readonly text: string
  readonly name: string
  readonly bytes: number
  /** When the message is on its way: another upload of the same file starts over. */
  done(): Promise<void>
}

/**
 * One that was broken off, be it by a crash, is gone on with when the same file is sent to the same again.
 * @throws OperatingError `file_missing`, `file_unreadable`; SealpostError as `Attachments.upload`
 */
export async function uploadFile(shell: Shell, path: string, to: PeerKey | { group: GroupId }): Promise<SentFile> {
  const source = await openSource(path)
  const name = safeFileName(basename(path))
  const folder = join(shell.profile.folder, 'uploads')
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const resume = new FileUploadLog(join(folder, await keyOf(path, JSON.stringify(to))))
  await using files = await openFiles(shell)
  using bar = openBar(shell.output, escapeName(name))
  const { signal } = shell
  const sent = await files.upload(source, { to, name, resume, signal, onProgress: (progress) => bar.update(progress) })
  return { text: attachmentText(sent), name, bytes: sent.bytes, done: () => resume.remove() }
}

async function openSource(path: string) {
  try {
    if (!(await stat(path)).isFile()) throw new OperatingError('file_unreadable', `${path} is no file.`)
    return await fileSource(path)
  } catch (cause) {
    if (cause instanceof OperatingError) throw cause
    throw (cause as { code?: string }).code === 'ENOENT'
      ? new OperatingError('file_missing', `There is no file at ${path}.`)
      : new OperatingError('file_unreadable', `The file at ${path} can't be read.`, { cause })
  }
}

/** A name for the log that says nothing of the file; one that was rewritten has another. */
async function keyOf(path: string, to: string): Promise<string> {
  const { mtimeMs, size } = await stat(path)
  return createHash('sha256').update(JSON.stringify([await realpath(path), mtimeMs, size, to])).digest('hex').slice(0, 32) // biome-ignore format: one thing
}

/**
 * Under a name of its own, never over another file.
 * @returns where. @throws OperatingError `folder_unusable`; SealpostError as `Attachments.download`
 */
export async function saveFile(
  shell: Shell,
  attachment: Attachment,
  folder: string,
  onProgress?: (progress: TransferProgress) => void,
): Promise<string> {
  await using files = await openFiles(shell)
  using bar = openBar(shell.output, escapeName(safeFileName(attachment.name)))
  const { signal } = shell
  const options = {
    ...{ folder, signal },
    onProgress: (progress: TransferProgress) => {
      bar.update(progress)
      onProgress?.(progress)
    },
  }
  return await saveAttachment(files, attachment, options).catch((error) => {
    throw isOfFileSystem(error) ? unusable(folder, error) : error
  })
}

const isOfFileSystem = (error: unknown): error is NodeJS.ErrnoException =>
  typeof (error as NodeJS.ErrnoException | null)?.syscall === 'string'

function unusable(folder: string, cause: NodeJS.ErrnoException): OperatingError {
  return new OperatingError('folder_unusable', `No file can be saved in ${folder} (${cause.code}).`, { cause })
}

async function openFiles(shell: Shell): Promise<Attachments> {
  return new Attachments(await meshPlaceOf(shell), { patienceMs: HTTP_PATIENCE_MS })
}

export interface TransferBar extends Disposable {
  update(progress: TransferProgress): void
}

const MIB = 2 ** 20
const FORMAT = '{bar} {percentage} %  {done} of {size} MB  {what}'

/** `what` is text of ours, or escaped. */
export function openBar(
  { isInteractive }: Pick<Output, 'isInteractive'>,
  what: string,
  stream: NodeJS.WritableStream = process.stderr,
): TransferBar {
  if (!isInteractive) return { update: () => undefined, [Symbol.dispose]: () => undefined }
  const options = { format: FORMAT, stream, barsize: 24, hideCursor: true, clearOnComplete: true }
  const bar = new cliProgress.SingleBar(options, cliProgress.Presets.shades_classic)
  let isOpen = false
  return {
    update: ({ bytes, total }) => {
      const facts = { what, done: (bytes / MIB).toFixed(1), size: (total / MIB).toFixed(1) }
      if (isOpen) bar.update(bytes, facts)
      else bar.start(total, bytes, facts)
      isOpen = true
    },
    [Symbol.dispose]: () => {
      if (isOpen) bar.stop()
    },
  }
}
