/**
 * Holds the unsettled messages, which the broker redelivers if this process dies. A read but unsettled message becomes
 * unread again after a while.
 */
import type { Identity } from '@sealpost/identity'
import type { Message } from '@sealpost/sdk'
import { attachmentOf, type TransferProgress } from '@sealpost/sdk/attachments'
import { type Millis, OperatingError } from '@sealpost/std'
import { saveFile } from '../messages/files.ts'
import { messageIdOf } from '../messages/incoming-message.ts'
import type { Shell } from '../shell.ts'

/** How long a message counts as read: longer than an agent's turn, after which its context has lost the message. */
const READ_FOR_MS = 600_000

export interface UnsettledMessage {
  /** Derived from sender and envelope, and so the same in the next process. */
  readonly messageId: string
  readonly message: Message
  /** How often this process has returned the message to the agent. */
  timesRead: number
  isUnread: boolean
  /** Where this process saved the file. */
  path: string | null
}

interface StoredMessage extends UnsettledMessage {
  readonly done: PromiseWithResolvers<void>
}

export interface InboxCounts {
  readonly unread: number
  readonly open: number
}

export class McpInbox {
  readonly #onUnread: () => void
  /** Called when the agent reads a message. */
  onRead: (message: Message) => void = () => undefined
  readonly #readForMs: Millis
  readonly #held = new Map<string, StoredMessage>()
  readonly #waiting = new Set<() => void>()

  constructor({ onUnread, readForMs = READ_FOR_MS }: { onUnread: () => void; readForMs?: Millis }) {
    this.#onUnread = onUnread
    this.#readForMs = readForMs
  }

  get counts(): InboxCounts {
    const unread = this.unread.length
    return { unread, open: this.#held.size - unread }
  }

  get unread(): UnsettledMessage[] {
    return [...this.#held.values()].filter(({ isUnread }) => isUnread)
  }

  get all(): UnsettledMessage[] {
    return [...this.#held.values()]
  }

  /** Holds a message until the promise resolves, during which the SDK extends its lease. */
  add(message: Message): Promise<void> {
    const held = this.#hold(message)
    this.#ring()
    return held.done.promise
  }

  /** Removes a message that another session is given, because the agent has not read it. */
  withdraw(message: Message): void {
    const messageId = idOf(message)
    const held = this.#held.get(messageId)
    if (held?.message !== message) return
    this.#held.delete(messageId)
    held.done.resolve()
  }

  /** Adds a reply that a tool has returned, as read. */
  addRead(message: Message): UnsettledMessage {
    const held = this.#hold(message)
    this.markRead([held])
    return held
  }

  markRead(messages: readonly UnsettledMessage[]): void {
    for (const open of messages) {
      open.timesRead += 1
      open.isUnread = false
      this.onRead(open.message)
    }
    setTimeout(() => this.#forget(messages), this.#readForMs).unref()
  }

  /** Waits until a message arrives, and marks it as read. Returns null if it does not arrive in time. */
  async takeArriving(
    reply: Pick<Message, 'sender' | 'envelopeId'>,
    withinMs: Millis,
    signal: AbortSignal,
  ): Promise<UnsettledMessage | null> {
    const isIt = ({ messageId }: UnsettledMessage) => messageId === idOf(reply)
    await this.whenUnread(withinMs, signal, isIt)
    const arrived = this.unread.find(isIt) ?? null
    if (arrived) this.markRead([arrived])
    return arrived
  }

  /** Resolves when the message is settled, returned or rejected. */
  whenClosed({ messageId }: UnsettledMessage): Promise<void> {
    return this.#held.get(messageId)?.done.promise ?? Promise.resolve()
  }

  /** Settles all of the messages or none. @throws OperatingError `message_unknown`, `file_not_saved` */
  settle(messageIds: readonly string[]): void {
    const isUnsaved = ({ message, path }: UnsettledMessage) => message.attachment !== null && path === null
    const unsaved = this.#findAll(messageIds).filter(isUnsaved)
    if (unsaved.length > 0) throw notSaved(unsaved)
    this.#close(messageIds, (message) => message.settle())
  }

  /** Returns all of the messages to the broker for `afterMs`, or none. @throws OperatingError `message_unknown` */
  retry(messageIds: readonly string[], afterMs: Millis): void {
    this.#close(messageIds, (message) => message.retry(afterMs))
  }

  /** Rejects all of the messages or none. @throws OperatingError `message_unknown` */
  reject(messageIds: readonly string[], reason: string): void {
    this.#close(messageIds, (message) => message.reject(reason))
  }

  /** @throws OperatingError `message_unknown` */
  find(messageId: string): UnsettledMessage {
    return this.#findAll([messageId])[0]!
  }

  /** Resolves once there is an unread message that is wanted, at the timeout, or when the signal fires. */
  async whenUnread(
    withinMs: Millis,
    signal: AbortSignal,
    isWanted: (open: UnsettledMessage) => boolean = () => true,
  ): Promise<void> {
    const isOver = () => this.unread.some(isWanted) || signal.aborted
    if (isOver() || withinMs === 0) return
    const over = Promise.withResolvers<void>()
    const timer = setTimeout(over.resolve, withinMs)
    const aborted = () => over.resolve()
    signal.addEventListener('abort', aborted)
    const look = () => {
      if (isOver()) over.resolve()
    }
    this.#waiting.add(look)
    await over.promise
    this.#waiting.delete(look)
    signal.removeEventListener('abort', aborted)
    clearTimeout(timer)
  }

  #hold(message: Message): StoredMessage {
    const messageId = idOf(message)
    const held = { messageId, message, timesRead: 0, isUnread: true, path: null, done: Promise.withResolvers<void>() }
    this.#held.set(messageId, held)
    return held
  }

  #close(messageIds: readonly string[], end: (message: Message) => void): void {
    for (const { messageId, message, done } of this.#findAll(messageIds)) {
      this.#held.delete(messageId)
      end(message)
      done.resolve()
    }
  }

  #findAll(messageIds: readonly string[]): StoredMessage[] {
    const unknown = messageIds.filter((messageId) => !this.#held.has(messageId))
    if (unknown.length > 0)
      throw new OperatingError(
        'message_unknown',
        `Nothing was done: there is no unsettled message with the id ${unknown.join(', ')}. It may already be settled.`,
      )
    return [...new Set(messageIds)].map((messageId) => this.#held.get(messageId)!)
  }

  #forget(messages: readonly UnsettledMessage[]): void {
    const forgotten = messages.filter((open) => this.#held.get(open.messageId) === open && !open.isUnread)
    for (const open of forgotten) open.isUnread = true
    if (forgotten.length > 0) this.#ring()
  }

  #ring(): void {
    for (const wake of this.#waiting) wake()
    this.#onUnread()
  }
}

function notSaved(unsaved: readonly UnsettledMessage[]): OperatingError {
  const ids = unsaved.map(({ messageId }) => messageId).join(', ')
  return new OperatingError(
    'file_not_saved',
    `Nothing was done: the file of ${ids} is not saved, and settling a message deletes its file. Call save_file first. If the file is lost or you don't need it, call reject_message.`,
  )
}

const idOf = (message: Pick<Message, 'sender' | 'envelopeId'>): string => messageIdOf(message, 24)

/** The download of a file, which continues between calls, for which clients allow 60 s. */
interface Download {
  readonly done: Promise<string>
  progress: TransferProgress
}

export class FileSaver {
  readonly #shell: Shell
  readonly #folder: string
  readonly #downloads = new Map<string, Download>()

  constructor(shell: Shell, folder: string) {
    this.#shell = shell
    this.#folder = folder
  }

  /** Returns the current download, or starts one as this identity. @throws OperatingError `no_file`, `attachment_unreadable` */
  save({ messageId, message }: UnsettledMessage, identity: Identity | null): Download {
    const underWay = this.#downloads.get(messageId)
    if (underWay) return underWay
    if (message.attachment === null) throw new OperatingError('no_file', `The message ${messageId} has no file.`)
    const file = attachmentOf(message)
    if (!file)
      throw new OperatingError(
        'attachment_unreadable',
        'A later version of sealpost sent the file. Update sealpost to save it.',
      )
    const noteProgress = (progress: TransferProgress) => {
      download.progress = progress
    }
    const download: Download = {
      done: saveFile(this.#shell, file, { folder: this.#folder, identity }, noteProgress),
      progress: { bytes: 0, total: file.bytes },
    }
    this.#downloads.set(messageId, download)
    download.done.catch(() => undefined) // the next call reports the error
    return download
  }

  /** Call once the client has the result. The next call starts a new download. */
  forget({ messageId }: UnsettledMessage): void {
    this.#downloads.delete(messageId)
  }
}
