/**
 * The file that comes with a message. A settled message is gone with the key of its file, so a command settles a message
 * only when it has saved the file; otherwise the message stays open, and the broker delivers it again to a later command.
 */
import { stat } from 'node:fs/promises'
import { type Message, type Peer, SealpostError } from '@sealpost/sdk'
import { attachmentOf } from '@sealpost/sdk/attachments'
import { type Millis, OperatingError } from '@sealpost/std'
import type { Shell } from '../completion.ts'
import type { Output } from '../output.ts'
import { saveFile } from './files.ts'

export type FileOutcome =
  | { readonly name: 'none' }
  | { readonly name: 'saved'; readonly path: string }
  /** No folder was given. */
  | { readonly name: 'left' }
  /** The broker can't give it now. */
  | { readonly name: 'later'; readonly code: string }
  /** The file can't be saved any more. */
  | { readonly name: 'lost'; readonly code: string }

const LOST: readonly string[] = ['attachment_unknown', 'attachment_changed', 'attachment_truncated', 'chunk_missing']
/** The reference is of a later version. */
const UNREADABLE = 'attachment_unreadable'

/** @throws OperatingError `folder_unusable`; SealpostError as `Attachments.download`, unless a outcome covers it */
export async function receiveFile(shell: Shell, message: Message, folder: string | undefined): Promise<FileOutcome> {
  if (message.attachment === null) return { name: 'none' }
  if (folder === undefined) return { name: 'left' }
  const file = attachmentOf(message)
  if (!file) return { name: 'lost', code: UNREADABLE }
  try {
    return { name: 'saved', path: await saveFile(shell, file, folder) }
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

/** The pause before a message that failed is delivered again. */
export const retryPause = ({ attempt }: Message): Millis =>
  Math.min(RETRY_MAX_MS, RETRY_BASE_MS * 2 ** Math.min(attempt - 1, 16))

/** Ends a message as its file allows: nothing is settled that was not saved. */
export function finishMessage(message: Message, outcome: FileOutcome): void {
  if (outcome.name === 'left' || outcome.name === 'later') message.retry(retryPause(message))
  else if (outcome.name === 'lost') message.reject(outcome.code)
  else message.settle()
}

/** The SDK's iterator settles a message when it is asked for the next one, so each message has an iterator of its own. */
export const nextMessage = (peer: Peer): Promise<IteratorResult<Message, undefined>> =>
  peer[Symbol.asyncIterator]().next()

const keyOf = ({ sender, envelopeId }: Message): string => `${sender} ${envelopeId}`

/** Files of messages that may come again to this command: each file is saved once. */
export class SavedFiles {
  readonly #paths = new Map<string, string>()

  /** As `receiveFile`. */
  async receive(shell: Shell, message: Message, folder: string | undefined): Promise<FileOutcome> {
    const path = this.#paths.get(keyOf(message))
    if (path !== undefined && (await sizeOf(path)) === attachmentOf(message)?.bytes) return { name: 'saved', path }
    const outcome = await receiveFile(shell, message, folder)
    if (outcome.name === 'saved') this.#paths.set(keyOf(message), outcome.path)
    return outcome
  }

  /** The message does not come again. */
  forget(message: Message): void {
    this.#paths.delete(keyOf(message))
  }
}

const sizeOf = (path: string): Promise<number | null> =>
  stat(path).then(
    ({ size }) => size,
    () => null, // the command has moved it
  )

const HELD_MAX = 64
/** The broker pushes nothing more to a session that holds three quarters of 1 MiB. */
const HELD_BYTES_MAX = 256 * 1024
/** Of an envelope, beside the body. */
const ENVELOPE_BYTES = 1024

/** Messages that a command leaves open because their files were not saved. */
export class UnsavedFiles {
  readonly #seen = new Set<string>()
  #held = 0
  #heldBytes = 0

  get #count(): number {
    return this.#seen.size
  }

  /**
   * Keeps the message leased until this command ends. With too many of them it gives the message back for a while, so that
   * other mail still comes.
   * @returns false if the message was left open before, and came again
   */
  leave(message: Message): boolean {
    const bytes = message.body.length + ENVELOPE_BYTES
    if (this.#held < HELD_MAX && this.#heldBytes + bytes <= HELD_BYTES_MAX) {
      this.#held += 1
      this.#heldBytes += bytes
    } else message.retry(RETRY_MAX_MS)
    const key = keyOf(message)
    if (this.#seen.has(key)) return false
    this.#seen.add(key)
    return true
  }

  /**
   * Reports at the end of a command what it left in the queue.
   * @throws OperatingError `file_not_saved`; what the command throws
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
    return `${messages} in the queue, because the file was not saved. \`sealpost listen --files FOLDER\` saves it.`
  }
}
