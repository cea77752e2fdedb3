/** Transfers files over HTTP, and settles messages according to their files. */
import { createHash } from 'node:crypto'
import { mkdir, realpath, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import type { Identity } from '@sealpost/identity'
import { type Message, SealpostError } from '@sealpost/sdk'
import { FileUploadLog, fileSource, safeFileName, saveAttachment } from '@sealpost/sdk/attachment-files'
import {
  type Attachment,
  Attachments,
  attachmentOf,
  attachmentText,
  type TransferProgress,
  type UploadOptions,
} from '@sealpost/sdk/attachments'
import { type Millis, OperatingError } from '@sealpost/std'
import cliProgress from 'cli-progress'
import { escapeName, type Output } from '../output.ts'
import type { Shell } from '../shell.ts'
import { HTTP_PATIENCE_MS, meshPlaceOf } from '../state/open-state.ts'

/** The peers that can open a file, or the members of a group. */
export type FileReaders = UploadOptions['to']

export interface SentFile {
  /** The file's reference, for the message. */
  readonly text: string
  readonly name: string
  readonly bytes: number
  /** Call once the message is sent, after which a later upload of the file starts again. */
  done(): Promise<void>
}

/**
 * Uploads a file. Resumes an interrupted upload of the same file to the same recipients, even after a crash.
 * @throws OperatingError `file_missing`, `file_unreadable`, and the errors of `Attachments.upload`
 */
export async function uploadFile(shell: Shell, path: string, to: FileReaders): Promise<SentFile> {
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

interface NamedBytes {
  readonly bytes: Uint8Array
  readonly name: string
  readonly type: string
}

/** Uploads bytes as a file. @throws the errors of `Attachments.upload` */
export async function uploadBytes(shell: Shell, { bytes, name, type }: NamedBytes, to: FileReaders): Promise<SentFile> {
  await using files = await openFiles(shell)
  using bar = openBar(shell.output, name)
  const onProgress = (progress: TransferProgress) => bar.update(progress)
  const source = new Blob([bytes as Uint8Array<ArrayBuffer>])
  const sent = await files.upload(source, { to, name, type, signal: shell.signal, onProgress })
  return { text: attachmentText(sent), name, bytes: sent.bytes, done: async () => undefined }
}

/** Downloads a file in pieces. @throws the errors of `Attachments.download` */
export async function* downloadFile(
  shell: Shell,
  attachment: Attachment,
  identity: Identity | null,
): AsyncGenerator<Uint8Array, void, undefined> {
  await using files = await openFiles(shell, identity)
  yield* files.download(attachment, { signal: shell.signal })
}

async function openSource(path: string) {
  try {
    if (!(await stat(path)).isFile()) throw new OperatingError('file_unreadable', `${path} is not a file.`)
    return await fileSource(path)
  } catch (cause) {
    if (cause instanceof OperatingError) throw cause
    throw (cause as { code?: string }).code === 'ENOENT'
      ? new OperatingError('file_missing', `There is no file at ${path}.`)
      : new OperatingError('file_unreadable', `Can't read the file ${path}.`, { cause })
  }
}

/** Returns a name for the upload log, a hash that a changed file changes. */
async function keyOf(path: string, to: string): Promise<string> {
  const { mtimeMs, size } = await stat(path)
  return createHash('sha256').update(JSON.stringify([await realpath(path), mtimeMs, size, to])).digest('hex').slice(0, 32) // biome-ignore format: one thing
}

/** Where to save a message's file, and who fetches it. */
export interface FileTarget<Folder extends string | undefined = string> {
  readonly folder: Folder
  /** The identity to which the file was sent. Default: the profile's own. */
  readonly identity?: Identity | null
}

/**
 * Saves a file under a unique name. @returns its path
 * @throws OperatingError `folder_unusable`, and the errors of `Attachments.download`
 */
export async function saveFile(
  shell: Shell,
  attachment: Attachment,
  { folder, identity = null }: FileTarget,
  onProgress?: (progress: TransferProgress) => void,
): Promise<string> {
  await using files = await openFiles(shell, identity)
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
  return new OperatingError('folder_unusable', `Can't save files in ${folder} (${cause.code}).`, { cause })
}

async function openFiles(shell: Shell, identity: Identity | null = null): Promise<Attachments> {
  const place = await meshPlaceOf(shell)
  return new Attachments({ ...place, ...(identity && { identity }) }, { patienceMs: HTTP_PATIENCE_MS })
}

interface TransferBar extends Disposable {
  update(progress: TransferProgress): void
}

const MIB = 2 ** 20
const FORMAT = '{bar} {percentage} %  {done} of {size} MB  {what}'

/** Opens a progress bar. `what` must be escaped. */
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

/** The outcome of a message's file. Settling deletes the file's key, so an unsaved file leaves the message open. */
export type FileOutcome =
  | { readonly name: 'none' }
  | { readonly name: 'saved'; readonly path: string }
  /** No folder was given, so the file is still at the broker. */
  | { readonly name: 'left' }
  /** The broker can't deliver the file now. */
  | { readonly name: 'later'; readonly code: string }
  /** The file is permanently lost. */
  | { readonly name: 'lost'; readonly code: string }

/** Returns the outcome of a message whose file, if it has one, nobody has saved. */
export const unsavedOutcome = ({ attachment }: Pick<Message, 'attachment'>): FileOutcome =>
  attachment === null ? { name: 'none' } : { name: 'left' }

const LOST: readonly string[] = ['attachment_unknown', 'attachment_changed', 'attachment_truncated', 'chunk_missing']
/** The code of a file reference of a later format version. */
const UNREADABLE = 'attachment_unreadable'

/**
 * Saves a message's file, if it has one. @throws OperatingError `folder_unusable`, and the errors of
 * `Attachments.download` that no outcome covers
 */
export async function receiveFile(
  shell: Shell,
  message: Message,
  { folder, identity = null }: FileTarget<string | undefined>,
): Promise<FileOutcome> {
  if (message.attachment === null || folder === undefined) return unsavedOutcome(message)
  const file = attachmentOf(message)
  if (!file) return { name: 'lost', code: UNREADABLE }
  try {
    return { name: 'saved', path: await saveFile(shell, file, { folder, identity }) }
  } catch (error) {
    if (!(error instanceof SealpostError)) throw error
    const { code } = error
    if (LOST.includes(code)) return { name: 'lost', code }
    if (error.isRetryable) return { name: 'later', code }
    throw error
  }
}

const RETRY_BASE_MS = 1_000
const RETRY_MAX_MS = 300_000

export const retryPause = ({ attempt }: Message): Millis =>
  Math.min(RETRY_MAX_MS, RETRY_BASE_MS * 2 ** Math.min(attempt - 1, 16))

/** Settles a message if its file was saved; otherwise retries or rejects it. */
export function finishMessage(message: Message, outcome: FileOutcome): void {
  if (outcome.name === 'left' || outcome.name === 'later') message.retry(retryPause(message))
  else if (outcome.name === 'lost') message.reject(outcome.code)
  else message.settle()
}

/** Returns the next message. Each has its own iterator, because the SDK's settles a message on the next call. */
export const nextMessage = (messages: AsyncIterable<Message, undefined>): Promise<IteratorResult<Message, undefined>> =>
  messages[Symbol.asyncIterator]().next()

/** Returns what identifies a message: its sender too, because senders choose envelope ids. `work` stores it on disk. */
export const messageKeyOf = ({ sender, envelopeId }: Message): string => `${sender} ${envelopeId}`

/** Saves the file of a redelivered message only once. */
export class SavedFiles {
  readonly #paths = new Map<string, string>()

  /** Like `receiveFile`, but returns the path of a file that was saved before. */
  async receive(shell: Shell, message: Message, target: FileTarget<string | undefined>): Promise<FileOutcome> {
    const path = this.#paths.get(messageKeyOf(message))
    if (path !== undefined && (await sizeOf(path)) === attachmentOf(message)?.bytes) return { name: 'saved', path }
    const outcome = await receiveFile(shell, message, target)
    if (outcome.name === 'saved') this.#paths.set(messageKeyOf(message), outcome.path)
    return outcome
  }

  /** Call when the message will not be redelivered. */
  forget(message: Message): void {
    this.#paths.delete(messageKeyOf(message))
  }
}

const sizeOf = (path: string): Promise<number | null> =>
  stat(path).then(
    ({ size }) => size,
    () => null, // the file was moved
  )

const HELD_MAX = 64
/**
 * The maximum size of open messages in bytes. The broker pushes nothing to a session that holds three quarters of 1
 * MiB.
 */
const HELD_BYTES_MAX = 256 * 1024
/** The overhead of an envelope, excluding its body. */
const ENVELOPE_BYTES = 1024

/** Tracks messages left open because their files were not saved. */
export class UnsavedFiles {
  readonly #seen = new Set<string>()
  #held = 0
  #heldBytes = 0

  get #count(): number {
    return this.#seen.size
  }

  /**
   * Keeps the message leased, or returns it for a while if too many are open, so that others still arrive.
   * @returns false if the message was left open before and was redelivered
   */
  leave(message: Message): boolean {
    const bytes = message.body.length + ENVELOPE_BYTES
    if (this.#held < HELD_MAX && this.#heldBytes + bytes <= HELD_BYTES_MAX) {
      this.#held += 1
      this.#heldBytes += bytes
    } else message.retry(RETRY_MAX_MS)
    const key = messageKeyOf(message)
    if (this.#seen.has(key)) return false
    this.#seen.add(key)
    return true
  }

  /**
   * Runs a command, then reports the messages that it left in the queue.
   * @throws OperatingError `file_not_saved`, and the errors of the command
   */
  async reportAfter(command: Promise<void>, output: Output): Promise<void> {
    try {
      await command
    } catch (error) {
      if (this.#count > 0) output.warn(this.#sentence)
      throw error
    }
    if (this.#count > 0) throw new OperatingError('file_not_saved', this.#sentence)
  }

  get #sentence(): string {
    const messages = this.#count === 1 ? '1 message stays' : `${this.#count} messages stay`
    return `${messages} in the queue, because the file was not saved. Save it with \`sealpost listen --files FOLDER\`.`
  }
}
